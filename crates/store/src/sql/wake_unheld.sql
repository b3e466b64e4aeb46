-- Makes runnable the executions that were held back and whose group is not held any more. Looks at each group with such
-- executions once, however many there are.
with recursive held_back as (
    (
        select tenant_id, definition_version_id, agent_version_id from executions where wait_reason = 'queue_paused'
        order by tenant_id, definition_version_id, agent_version_id limit 1
    )
    union all
    select next.tenant_id, next.definition_version_id, next.agent_version_id from held_back g cross join lateral (
        select e.tenant_id, e.definition_version_id, e.agent_version_id from executions e
        where e.wait_reason = 'queue_paused' and (e.tenant_id, e.definition_version_id, e.agent_version_id)
            > (g.tenant_id, g.definition_version_id, g.agent_version_id)
        order by e.tenant_id, e.definition_version_id, e.agent_version_id limit 1
    ) next
),
now as materialized (
    select longhaul_now() as now
),
free as materialized (
    select found.id, found.event_seq, now.now
    from now, held_back cross join lateral (
        select e.id, e.event_seq from executions e
        where e.wait_reason = 'queue_paused' and e.tenant_id = held_back.tenant_id
            and e.definition_version_id = held_back.definition_version_id
            and e.agent_version_id = held_back.agent_version_id
        order by e.id
        limit $1
        for update of e skip locked
    ) found
    where not exists (
        select from quarantine_groups g
        where g.tenant_id = held_back.tenant_id and g.definition_version_id = held_back.definition_version_id
            and g.agent_version_id = held_back.agent_version_id and g.held_since is not null
    )
    limit $1
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
