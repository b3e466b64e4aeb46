-- Expires requests that were not answered in time, and wakes their executions as a decision does. Requests of
-- an execution that is over are closed without an event: its end may have missed a request that was being
-- written.
with due as materialized (
    select id, execution_id from human_requests
    where id = any ($1) and state = 'waiting' and expires_at <= longhaul_now()
),
execution as materialized (
    select e.id, e.event_seq, e.queue, e.finished_at is not null as is_over,
        coalesce(e.wait_reason in ('approval', 'input', 'children'), false) as was_parked
    from executions e
    where e.id in (select execution_id from due) and (e.root_id is null or longhaul_try_lock(e.root_id))
    order by e.id
    for update of e skip locked
),
ended as (
    update human_requests r
    set state = case when x.is_over then 'closed' else 'expired' end, decided_at = longhaul_now()
    from due, execution x
    where r.id = due.id and x.id = due.execution_id and r.state = 'waiting'
    returning r.id, r.execution_id, r.kind, r.call_id, r.tool, r.decided_at, x.is_over
),
expired as (
    select ended.*, x.event_seq + row_number() over (partition by x.id order by ended.id) as seq
    from ended join execution x on x.id = ended.execution_id
    where not ended.is_over
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select execution_id, seq, decided_at,
        case kind when 'approval' then 'approval_expired' when 'question' then 'question_expired'
            else 'tool_call_expired' end,
        jsonb_build_object('id', id, 'call_id', call_id, 'tool', tool)
    from expired
),
woken as (
    select execution_id, max(seq) as seq from expired group by execution_id
),
unparked as (
    select x.id, longhaul_unpark(x.id) from execution x join woken on woken.execution_id = x.id where x.was_parked
)
update executions e
set wake_seq = e.wake_seq + 1, event_seq = woken.seq,
    -- Postgres checks constraints on the row as of the statement's snapshot before it finds that a newer version
    -- is locked: if a worker holds that older version, its reason must stay null.
    wait_reason = case when e.worker_id is null then case when x.was_parked then 'worker' else e.wait_reason end end,
    wait_until = case when not x.was_parked then e.wait_until end
from execution x join woken on woken.execution_id = x.id left join unparked on unparked.id = x.id
where e.id = x.id
-- An execution that waits for a worker gets a wake-up again: a claim that met this update skipped it, and its
-- wake-up was spent on that claim.
returning e.id as "id!", x.queue as "queue!", coalesce(e.wait_reason = 'worker', false) as "is_runnable!"
