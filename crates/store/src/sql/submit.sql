-- Inserts executions as PENDING with their payload, first event and count. Ids and idempotency keys that exist
-- are left alone, so repeating the statement changes nothing.
with now as materialized (
    select longhaul_now() as now
),
input as materialized (
    select input.*, now.now, now.now + deadline_seconds * interval '1 second' as deadline_at,
        case
            when run_at > now.now then 'scheduled'
            -- Looked up once, in a table that is nearly always empty (docs/adr/0019-quarantine.md).
            when (tenant_id, definition_version_id, agent_version_id) in (
                select g.tenant_id, g.definition_version_id, g.agent_version_id from quarantine_groups g
                    where g.held_since is not null
            ) then 'queue_paused'
            else 'worker'
        end as wait_reason
    from now, unnest($1::submission[]) as input
),
keyed as (
    insert into idempotency_keys (tenant_id, key, execution_id, request_hash, created_at)
    select tenant_id, idempotency_key, id, request_hash, now from input where idempotency_key is not null
    on conflict (tenant_id, key) do nothing
    returning execution_id
),
fresh as (
    select * from input where idempotency_key is null or id in (select execution_id from keyed)
),
inserted as (
    insert into executions (
        id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
        metadata, created_at, deadline_at, active_timeout, submitted_by, wait_reason, wait_until, event_seq,
        has_budget
    )
    select
        id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
        metadata, now, deadline_at, active_timeout_seconds * interval '1 second', submitted_by,
        wait_reason, case wait_reason when 'scheduled' then run_at when 'queue_paused' then deadline_at end, 1,
        on_exhausted is not null
    from fresh
    on conflict (id) do nothing
    returning id, deadline_at as must_end_at, wait_reason as waits_for, wait_until as waits_until
),
payloads as (
    insert into execution_payloads (execution_id, input, traceparent, overrides)
    select id, input::json, traceparent, overrides::json from fresh join inserted using (id)
),
caps as (
    insert into budgets (root_id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted)
    select id, tenant_id, max_cost, max_tokens, max_calls, on_exhausted from fresh join inserted using (id)
    where on_exhausted is not null
),
first_events as (
    insert into events (execution_id, seq, at, kind, data)
    select id, 1, now, 'submitted', null from fresh join inserted using (id)
),
waits as (
    insert into parked (execution_id, tenant_id, wait_reason, wait_until)
    select id, tenant_id, wait_reason,
        case wait_reason when 'scheduled' then least(run_at, deadline_at) else deadline_at end
    from fresh join inserted using (id) where wait_reason <> 'worker'
),
near_deadlines as (
    insert into deadlines (execution_id, deadline_at)
    select id, deadline_at from fresh join inserted using (id) where deadline_is_near
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (now at time zone 'UTC')::date, 'PENDING', count(*)
    from fresh join inserted using (id)
    group by 1, 2, 3, 4
)
select inserted.id as "id!", now.now as "created_at!", must_end_at as "deadline_at!", waits_for as "wait_reason!: _",
    waits_until as wait_until
from inserted, now
