-- Predicate `is_over` of the reason `children` (core-rules 3): makes runnable what waits for children of which none is
-- awaited any more, even if the wake was lost.
with now as materialized (
    select longhaul_now() as now
),
over as materialized (
    select e.id, e.event_seq, e.wait_reason, now.now
    from now, parked p join executions e on e.id = p.execution_id
    where p.wait_reason = 'children' and e.wait_reason = 'children'
        and longhaul_children_over(e.id)
    order by e.id
    limit $1
    for no key update of e skip locked
),
gone as (
    delete from parked p using over where p.execution_id = over.id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'woken', jsonb_build_object('waited_for', wait_reason) from over
)
update executions e
set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
from over
where e.id = over.id
returning e.id as "id!", e.queue as "queue!"
