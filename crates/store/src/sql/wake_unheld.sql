-- Makes runnable the executions that were held back and whose group is not held any more.
with now as materialized (
    select longhaul_now() as now
),
free as materialized (
    select e.id, e.event_seq, now.now
    from now, parked p join executions e on e.id = p.execution_id
    where p.wait_reason = 'queue_paused' and e.wait_reason = 'queue_paused' and not exists (
        select from quarantine_groups g
        where g.tenant_id = e.tenant_id and g.definition_version_id = e.definition_version_id
            and g.agent_version_id = e.agent_version_id and g.held_since is not null
    )
    order by e.id
    limit $1
    for update of e skip locked
),
gone as (
    delete from parked p using free where p.execution_id = free.id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'woken', jsonb_build_object('waited_for', 'queue_paused') from free
)
update executions e
set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
from free
where e.id = free.id
returning e.id, e.queue
