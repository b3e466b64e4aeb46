-- Inserts an execution that is refused at submit: FAILED, with its payload, two events and count. An id or key
-- that exists is left alone, so repeating the statement changes nothing.
with now as materialized (
    select longhaul_now() as now
),
keyed as (
    insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
    select $2, $11, $1, $12, now from now where $11::text is not null
    on conflict (tenant_id, key) do nothing
    returning execution_id
),
inserted as (
    insert into executions (
        id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
        metadata,
        created_at, deadline_at, active_timeout, submitted_by, status, finished_at, failure_class, failure_code,
        event_seq
    )
    select $1, $2, $3, $4, $5, $6, $7, '', 5, $8, now, now + interval '30 days', interval '1 hour', $9, 'FAILED', now,
        $13, $14, 2
    from now
    where $11::text is null or exists (select from keyed)
    on conflict (id) do nothing
    returning id, created_at
),
payload as (
    insert into execution_payloads (execution_id, input, overrides, traceparent, failure_summary, failure_detail)
    select id, $15::text::json, $16::text::json, $10, $17, $18::text::json from inserted
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, 1, created_at, 'submitted', null::jsonb from inserted
    union all
    select id, 2, created_at, 'failed', jsonb_build_object('failure_class', $13::text, 'failure_code', $14::text)
        from inserted
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select $2, $3, $5, (created_at at time zone 'UTC')::date, 'FAILED', 1 from inserted
)
select id as "id!" from inserted
