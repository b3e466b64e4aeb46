-- Inserts an execution that is refused at submit: FAILED, with its payload, two events and count. An id or key
-- that exists is left alone, so repeating the statement changes nothing.
with now as materialized (
    select longhaul_now() as now
),
new as materialized (
    select ($1::submission).*
),
keyed as (
    insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
    select new.tenant_id, new.idempotency_key, new.id, new.request_hash, now.now
    from new, now
    where new.idempotency_key is not null
    on conflict (tenant_id, key) do nothing
    returning execution_id
),
inserted as (
    insert into executions (
        id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
        metadata, created_at, deadline_at, active_timeout, submitted_by, status, finished_at, failure_class,
        failure_code, event_seq
    )
    select new.id, new.tenant_id, new.definition_key, new.definition_version_id, new.agent_key, new.agent_version_id,
        new.queue, '', 5, new.metadata, now.now, now.now + interval '30 days', interval '1 hour', new.submitted_by,
        'FAILED', now.now, $2, $3, 2
    from new, now
    where new.idempotency_key is null or exists (select from keyed)
    on conflict (id) do nothing
    returning id, tenant_id, definition_key, agent_key, created_at
),
payload as (
    insert into execution_payloads (execution_id, input, overrides, traceparent, failure_summary, failure_detail)
    select new.id, new.input::json, new.overrides::json, new.traceparent, $4, $5::text::json from inserted, new
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, 1, created_at, 'submitted', null::jsonb from inserted
    union all
    select id, 2, created_at, 'failed', jsonb_build_object('failure_class', $2::text, 'failure_code', $3::text)
        from inserted
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, 'FAILED', 1 from inserted
)
select id as "id!" from inserted
