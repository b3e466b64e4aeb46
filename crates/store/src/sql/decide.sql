-- Stores a person's decision on one waiting request, once, with its event, and wakes the execution, which becomes
-- runnable if it is parked for its calls (core-rules 3). The execution is locked first: of two decisions one
-- finds nothing, and a park under way is seen.
with execution as materialized (
    select e.id, e.event_seq, coalesce(e.wait_reason in ('approval', 'input', 'children'), false) as was_parked
    from executions e
    where e.id = (select r.execution_id from human_requests r where r.id = $1 and r.tenant_id = $2)
        and e.finished_at is null
    for update of e
),
decided as (
    update human_requests r
    set state = $5, decided_at = now.now, decided_key_id = $6, decided_key_name = $7, decided_by = $8, reason = $9,
        decision_tool = $10, decision_body = $11
    -- Read after the lock was acquired: a decision that waited past the expiry is too late.
    from execution x cross join lateral (select longhaul_now() as now where x.id is not null) now
    where r.id = $1 and r.kind = $3 and r.hash = $4 and r.state = 'waiting' and r.expires_at > now.now
    returning r.*
),
unparked as (
    select longhaul_unpark(x.id) from execution x, decided where x.was_parked
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select x.id, x.event_seq + 1, d.decided_at,
        case d.kind when 'approval' then 'approval_decided' else 'question_answered' end,
        jsonb_strip_nulls(jsonb_build_object(
            'id', d.id, 'tool', d.tool, 'decision', d.state, 'key_name', d.decided_key_name, 'decided_by', d.decided_by,
            'replaced_by', d.decision_tool
        ))
    from decided d, execution x
)
update executions e
set wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1,
    -- Postgres checks constraints on the row as of the statement's snapshot before it finds that a newer version
    -- is locked: if a worker holds that older version, its reason must stay null.
    wait_reason = case when e.worker_id is null then case when x.was_parked then 'worker' else e.wait_reason end end,
    wait_until = case when not x.was_parked then e.wait_until end
from execution x join decided on true left join unparked on true
where e.id = x.id
-- An execution that waits for a worker gets a wake-up again: a claim that met this update skipped it, and its
-- wake-up was spent on that claim.
returning e.id as "execution_id!", e.queue as "queue!", coalesce(e.wait_reason = 'worker', false) as "is_runnable!"
