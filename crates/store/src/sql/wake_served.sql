-- Makes runnable the executions that waited for a worker, once a live worker serves them. Looks at each pair of queue
-- and serve key with such executions once, however many there are.
with recursive pair as (
    (select queue, serve_key from executions where wait_reason = 'no_worker' order by queue, serve_key limit 1)
    union all
    select next.queue, next.serve_key from pair cross join lateral (
        select e.queue, e.serve_key from executions e
        where e.wait_reason = 'no_worker' and (e.queue, e.serve_key) > (pair.queue, pair.serve_key)
        order by e.queue, e.serve_key limit 1
    ) next
),
now as materialized (
    select longhaul_now() as now
),
served as materialized (
    select found.id, found.event_seq, now.now
    from now, pair cross join lateral (
        select e.id, e.event_seq from executions e
        where e.wait_reason = 'no_worker' and e.queue = pair.queue and e.serve_key = pair.serve_key
        order by e.id
        limit $1
        for update of e skip locked
    ) found
    where exists (
        select from workers w
        where w.dead_at is null and pair.queue = any (w.queues) and pair.serve_key = any (w.serves)
    )
    limit $1
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
