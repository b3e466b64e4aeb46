-- Makes runnable what waited for a worker that now lives.
with now as materialized (
    select longhaul_now() as now
),
served as materialized (
    select e.id, e.event_seq, now.now
    from now, parked p join executions e on e.id = p.execution_id
    where p.wait_reason = 'no_worker'
        -- Of the row as it is once it is locked: another sweep may have woken it, and a worker have it.
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
