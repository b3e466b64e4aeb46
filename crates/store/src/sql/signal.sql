-- Stores a signal to execution $2 of tenant $1 with its event, and wakes the execution, once for an idempotency key.
-- It becomes runnable if it is parked and has begun (core-rules 3). The execution is locked first: its newest event
-- number is the signal's, so that concurrent signals get numbers of their own. At most $6 are kept.
with execution as materialized (
    select e.id, e.event_seq,
        coalesce(e.wait_reason in ('approval', 'input', 'children')
            or e.wait_reason = 'scheduled' and e.started_at is not null, false) as was_parked
    from executions e
    where e.id = $2 and e.tenant_id = $1 and e.finished_at is null
    for update of e
),
stored as (
    insert into signals (execution_id, name, seq, payload, sent_at, sent_key)
    select x.id, $3, x.event_seq + 1, $4::text::json, longhaul_now(), $5
    from execution x
    where (select count(*) from signals s where s.execution_id = x.id) < $6
    on conflict do nothing
    returning execution_id, seq
),
unparked as (
    select longhaul_unpark(x.id) from execution x join stored on true where x.was_parked
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select execution_id, seq, longhaul_now(), 'signal_received', jsonb_build_object('name', $3::text) from stored
)
update executions e
set wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1,
    -- As in decide.sql: a row that a worker holds has no reason.
    wait_reason = case when e.worker_id is null then case when x.was_parked then 'worker' else e.wait_reason end end,
    wait_until = case when not x.was_parked then e.wait_until end
from execution x join stored on true left join unparked on true
where e.id = x.id
returning stored.seq as "seq!", e.queue as "queue!", coalesce(e.wait_reason = 'worker', false) as "is_runnable!"
