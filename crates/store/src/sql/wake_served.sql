-- Makes runnable the executions that waited for a worker, once a live worker serves them.
with now as materialized (
    select longhaul_now() as now
),
served as materialized (
    select e.id, e.event_seq, now.now
    from now, parked p join executions e on e.id = p.execution_id
    where p.wait_reason = 'no_worker'
        -- Checked on the locked row: another sweep may have woken it, and a worker may hold it.
        and e.wait_reason = 'no_worker'
        and exists (
            select from workers w
            where w.dead_at is null
                and e.queue = any (w.queues) and e.serve_key = any (w.serves)
        )
    order by e.id
    limit $1
    for update of e skip locked
),
gone as (
    delete from parked p using served where p.execution_id = served.id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'woken', jsonb_build_object('waited_for', 'no_worker') from served
)
update executions e
set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
from served s
where e.id = s.id
returning e.id as "id!", e.queue as "queue!"
