-- Stores decisions on waiting requests of one execution, all or none, each once and with its event, and wakes the
-- execution once. It becomes runnable if it is parked for its calls (core-rules 3). The execution is locked first: of
-- two decisions one finds nothing, and a park under way is seen.
with item as (
    select * from unnest($2::request_decision[])
),
execution as materialized (
    select e.id, e.event_seq, coalesce(e.wait_reason in ('approval', 'input', 'children'), false) as was_parked
    from executions e
    where e.id = (
        select r.execution_id from human_requests r
        where r.id = (($2::request_decision[])[1]).id and r.tenant_id = $1
    )
        and e.finished_at is null
    for update of e
),
fit as materialized (
    select r.id, now.now
    -- Read after the lock was acquired: a decision that waited past the expiry is too late.
    from execution x cross join lateral (select longhaul_now() as now where x.id is not null) now
    join human_requests r on r.execution_id = x.id
    join item on item.id = r.id and item.kind = r.kind and item.hash = r.hash
    where r.state = 'waiting' and r.expires_at > now.now
    -- Its condition is tested on the newest version of the row, also if the statement's snapshot is older.
    for update of r
),
decided as (
    update human_requests r
    set state = item.state, decided_at = fit.now, decided_key_id = item.key_id, decided_key_name = item.key_name,
        decided_by = item.person, reason = item.reason, decision_tool = item.tool, decision_body = item.body
    from fit join item on item.id = fit.id
    where r.id = fit.id and (select count(*) from fit) = cardinality($2::request_decision[])
    returning r.*
),
stored as materialized (
    select count(*)::int as decisions from decided having count(*) > 0
),
unparked as (
    select longhaul_unpark(x.id) from execution x, stored where x.was_parked
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select x.id, x.event_seq + row_number() over (order by d.id), d.decided_at,
        case d.kind when 'approval' then 'approval_decided' when 'question' then 'question_answered'
            else 'tool_result_posted' end,
        jsonb_strip_nulls(jsonb_build_object(
            'id', d.id, 'call_id', d.call_id, 'tool', d.tool, 'decision', d.state, 'key_name', d.decided_key_name,
            'decided_by', d.decided_by, 'replaced_by', d.decision_tool
        ))
    from decided d, execution x
)
update executions e
set wake_seq = e.wake_seq + 1, event_seq = e.event_seq + stored.decisions,
    -- Postgres checks constraints on the row as of the statement's snapshot before it finds that a newer version
    -- is locked: if a worker holds that older version, its reason must stay null.
    wait_reason = case when e.worker_id is null then case when x.was_parked then 'worker' else e.wait_reason end end,
    wait_until = case when not x.was_parked then e.wait_until end
from execution x join stored on true left join unparked on true
where e.id = x.id
-- An execution that waits for a worker gets a wake-up again: a claim that met this update skipped it, and its
-- wake-up was spent on that claim.
returning e.id as "execution_id!", e.queue as "queue!", coalesce(e.wait_reason = 'worker', false) as "is_runnable!"
