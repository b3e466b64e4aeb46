-- Parks with `queue_paused` the runnable executions that were never started and belong to a group whose new
-- executions are held back.
with now as materialized (
    select longhaul_now() as now
),
held as materialized (
    select e.id, e.tenant_id, e.deadline_at, e.event_seq, now.now
    from now, quarantine_groups g
    join executions e on e.tenant_id = g.tenant_id and e.definition_version_id = g.definition_version_id
        and e.agent_version_id = g.agent_version_id
    where g.held_since is not null and e.finished_at is null and e.status = 'PENDING' and e.wait_reason = 'worker'
        and e.lane = 0
    order by e.id
    limit $1
    for update of e skip locked
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
