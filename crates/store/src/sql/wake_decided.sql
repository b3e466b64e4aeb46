-- Predicate `is_over` of the reasons `approval` and `input` (core-rules 3): a request of the execution was
-- decided, and its call has no result yet. A safety net, as the wake protocol leaves it nothing to find. Looks at
-- the next $1 decisions after $2, or of the last $3 seconds.
with looked_at as materialized (
    select r.execution_id, r.call_key, r.state
    from human_requests r
    where r.decided_at > greatest($2::timestamptz, longhaul_now() - $3 * interval '1 second')
    order by r.decided_at
    limit $1
),
decided as materialized (
    select distinct r.execution_id
    from looked_at r
    join parked p on p.execution_id = r.execution_id and p.wait_reason in ('approval', 'input')
    where r.state <> 'closed'
        and not exists (
            select from steps s
            where s.execution_id = r.execution_id and s.kind = 'call' and s.state = 'live' and s.key = r.call_key
        )
        -- Not a call that was replaced by one which a person must allow in turn.
        and not exists (
            select from human_requests next
            where next.execution_id = r.execution_id and next.call_key = r.call_key and next.state = 'waiting'
        )
),
waiting as materialized (
    select e.id, e.event_seq, e.wait_reason
    from executions e
    where e.id in (select execution_id from decided) and e.wait_reason in ('approval', 'input')
    order by e.id
    for update of e skip locked
),
gone as (
    delete from parked p using waiting where p.execution_id = waiting.id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, longhaul_now(), 'woken', jsonb_build_object('waited_for', wait_reason) from waiting
)
update executions e
set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
from waiting w
where e.id = w.id
returning e.id as "id!", e.queue as "queue!"
