-- Inserts children of one running execution, each once by its spawn key, with payloads and first events: all, or
-- none and a refusal. The parent is locked first and must be held by the calling lease, and be neither over nor
-- to be cancelled (core-rules 17). Parents of one tree spawn one after another, so that the tree's size is exact:
-- under an advisory lock, since the root's row is written by its own worker and by the ends of its children.
with me as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
now as materialized (
    select longhaul_now() as now from me
),
turn as materialized (
    select pg_advisory_xact_lock(hashtextextended(coalesce(e.root_id, e.id)::text, 17)) is not null as is_mine
    from me join executions e on e.id = $2
),
parent as materialized (
    select e.*, exists (select from deadlines d where d.execution_id = e.id) as has_near_deadline
    from turn join executions e on e.id = $2 and turn.is_mine
    where e.worker_id is not distinct from $1 and e.lease_token = $3
    for no key update of e
),
wanted as materialized (
    select wanted.*
    from unnest($4::bytea[], $5::submission[]) as wanted (spawn_key)
    where not exists (select from executions c where c.parent_id = $2 and c.spawn_key = wanted.spawn_key)
),
verdict as materialized (
    select case
        when parent.cancel_requested_at is not null then 'cancelled'
        when asked.n = 0 then null
        when parent.depth >= $6::smallint then 'too_deep'
        when parent.children + asked.n > $7::int then 'too_many_children'
        when asked.n + longhaul_tree_size(coalesce(parent.root_id, parent.id), $8::int) > $8::int then 'tree_full'
    end as refusal
    from parent, (select count(*) as n from wanted) asked
),
inserted as (
    insert into executions (
        id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
        metadata, created_at, deadline_at, active_timeout, submitted_by, wait_reason, wait_until, event_seq, parent_id,
        root_id,
        depth, spawn_key, has_budget, budget_id
    )
    select
        wanted.id, parent.tenant_id, wanted.definition_key, wanted.definition_version_id, wanted.agent_key,
        wanted.agent_version_id, parent.queue, wanted.serve_key, parent.priority, wanted.metadata, now.now,
        least(now.now + wanted.deadline_seconds * interval '1 second', parent.deadline_at),
        wanted.active_timeout_seconds * interval '1 second', parent.submitted_by,
        case when held.back then 'queue_paused' else 'worker' end,
        case when held.back then least(now.now + wanted.deadline_seconds * interval '1 second',
            parent.deadline_at) end, 1, parent.id,
        coalesce(parent.root_id, parent.id), parent.depth + 1, wanted.spawn_key, parent.has_budget,
        parent.budget_id
    from parent, verdict, now, wanted cross join lateral (
        -- As in submit.sql (docs/adr/0019-quarantine.md).
        select exists (
            select from quarantine_groups g
            where g.held_since is not null and g.tenant_id = (select tenant_id from parent)
                and g.definition_version_id = wanted.definition_version_id
                and g.agent_version_id = wanted.agent_version_id
        ) as back
    ) held
    where verdict.refusal is null
    order by wanted.id
    on conflict do nothing
    returning id, tenant_id, definition_key, agent_key, created_at, deadline_at, wait_reason
),
held_back as (
    insert into parked (execution_id, tenant_id, wait_reason, wait_until)
    select id, tenant_id, wait_reason, deadline_at from inserted where wait_reason <> 'worker'
),
payloads as (
    insert into execution_payloads (execution_id, input, overrides, traceparent)
    select inserted.id, wanted.input::json, wanted.overrides::json, coalesce(wanted.traceparent, p.traceparent)
    from inserted join wanted on wanted.id = inserted.id left join execution_payloads p on p.execution_id = $2
),
near_deadlines as (
    insert into deadlines (execution_id, deadline_at)
    select inserted.id, inserted.deadline_at
    from parent, inserted join wanted on wanted.id = inserted.id
    where wanted.deadline_is_near or parent.has_near_deadline
),
first_events as (
    insert into events (execution_id, seq, at, kind, data)
    select id, 1, created_at, 'submitted', jsonb_build_object('parent_id', $2::uuid) from inserted
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select parent.id, parent.event_seq + row_number() over (order by inserted.id), inserted.created_at, 'child_spawned',
        jsonb_build_object('child_id', inserted.id, 'agent', inserted.agent_key, 'definition', inserted.definition_key)
    from parent, inserted
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, 'PENDING', count(*)
    from inserted
    group by 1, 2, 3, 4
),
raised as (
    update executions e
    set children = e.children + new.n, open_children = e.open_children + new.n, event_seq = e.event_seq + new.n
    from parent, (select count(*)::int as n from inserted) new
    where e.id = parent.id and new.n > 0
    returning e.id
)
select verdict.refusal, parent.queue as "queue!", (select count(*) from raised) as "raised!"
from parent, verdict
