-- Predicate `is_over` of the reasons `approval` and `input` (core-rules 3): a request of the execution was
-- decided, and its call has no result yet. A safety net, as the wake protocol leaves it nothing to find. Looks at
-- the decisions of the last $2 seconds.
with decided as materialized (
    select distinct r.execution_id
    from human_requests r
    join parked p on p.execution_id = r.execution_id and p.wait_reason in ('approval', 'input')
    where r.decided_at > longhaul_now() - $2 * interval '1 second' and r.state <> 'closed'
        and not exists (
            select from steps s
            where s.execution_id = r.execution_id and s.kind = 'call' and s.state = 'live' and s.key = r.call_key
        )
        -- Not a call that was replaced by one which a person must allow in turn.
        and not exists (
            select from human_requests next
            where next.execution_id = r.execution_id and next.call_key = r.call_key and next.state = 'waiting'
        )
    limit $1
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
