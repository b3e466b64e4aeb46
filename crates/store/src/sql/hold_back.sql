-- Parks with `queue_paused` the runnable executions that were never started and belong to a group whose new
-- executions are held back.
with recursive pair as (
    (select queue, serve_key from executions where wait_reason = 'worker' order by queue, serve_key limit 1)
    union all
    select next.queue, next.serve_key from pair cross join lateral (
        select queue, serve_key from executions
        where wait_reason = 'worker' and (queue, serve_key) > (pair.queue, pair.serve_key)
        order by queue, serve_key limit 1
    ) next
),
now as materialized (
    select longhaul_now() as now
),
held as materialized (
    select e.id, e.tenant_id, e.deadline_at, e.event_seq, now.now
    from now, quarantine_groups g cross join pair cross join lateral (
        -- What its tenant has that is runnable and new; not what is held back already.
        select x.* from executions x
        where x.wait_reason = 'worker' and x.queue = pair.queue and x.serve_key = pair.serve_key and x.lane = 0
            and x.tenant_id = g.tenant_id and x.started_at is null and x.status = 'PENDING'
            and x.definition_version_id = g.definition_version_id and x.agent_version_id = g.agent_version_id
        limit $1
        for update skip locked
    ) e
    where g.held_since is not null
    limit $1
),
waits as (
    insert into parked (execution_id, tenant_id, wait_reason, wait_until)
    select id, tenant_id, 'queue_paused', deadline_at from held
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'parked', jsonb_build_object('wait_reason', 'queue_paused', 'held_by', 'quarantine')
        from held
)
update executions e
set wait_reason = 'queue_paused', wait_until = held.deadline_at, event_seq = e.event_seq + 1
from held
where e.id = held.id
returning e.id as "id!"
