-- Predicate `is_over` of the reason `children` (core-rules 3): makes runnable what waits for children of which none is
-- awaited any more, even if the wake was lost. A net, which looks at the next $1 after $2; returns them with whether
-- they were woken.
with now as materialized (
    select longhaul_now() as now
),
looked_at as materialized (
    select execution_id from parked
    where wait_reason = 'children' and execution_id > $2
    order by execution_id limit $1
),
over as materialized (
    select e.id, e.event_seq, e.wait_reason, now.now
    from now, looked_at join executions e on e.id = looked_at.execution_id
    where e.wait_reason = 'children' and longhaul_children_over(e.id)
    order by e.id
    for no key update of e skip locked
),
gone as (
    delete from parked p using over where p.execution_id = over.id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'woken', jsonb_build_object('waited_for', wait_reason) from over
),
woken as (
    update executions e
    set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
    from over
    where e.id = over.id
    returning e.id, e.queue
)
select looked_at.execution_id as "id!", woken.queue as "queue?"
from looked_at left join woken on woken.id = looked_at.execution_id
order by looked_at.execution_id
