-- Makes those of the parked executions $1 runnable whose `wait_until` has passed; one that reached its deadline ends as
-- FAILED `deadline_exceeded`.
with now as materialized (
    select longhaul_now() as now
),
due as materialized (
    select execution_id from parked
    where execution_id = any ($1) and wait_until <= longhaul_now()
    order by execution_id
    for update of parked skip locked
),
waiting as materialized (
    select e.id, e.tenant_id, e.definition_key, e.agent_key, e.created_at, e.status, e.event_seq, e.wait_reason,
        now.now,
        e.deadline_at <= now.now as is_over
    from now, due join executions e on e.id = due.execution_id
    where e.worker_id is null and e.finished_at is null
        and (e.parent_id is null or longhaul_try_lock(e.parent_id))
    order by e.id
    for update of e skip locked
),
gone as (
    -- Also deletes the row of an execution that ended or was claimed meanwhile: nothing else would.
    delete from parked p using due left join waiting on waiting.id = due.execution_id
    where p.execution_id = due.execution_id and (
        waiting.id is not null
        or exists (
            select from executions e
            where e.id = due.execution_id and (e.finished_at is not null or e.wait_reason is null
                or e.wait_reason = 'worker')
        )
    )
),
no_deadline as (
    delete from deadlines d using waiting where d.execution_id = waiting.id and waiting.is_over
),
closed as (
    select id, longhaul_close_requests(id) from waiting where is_over
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, case when is_over then 'failed' else 'woken' end,
        case when is_over then jsonb_build_object('failure_code', 'deadline_exceeded', 'waited_for', wait_reason)
            else jsonb_build_object('waited_for', wait_reason) end
    from waiting
),
said as (
    update execution_payloads p set failure_summary = 'the deadline passed while it waited for ' || waiting.wait_reason
    from waiting where p.execution_id = waiting.id and waiting.is_over
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select w.tenant_id, w.definition_key, w.agent_key, (w.created_at at time zone 'UTC')::date, s.status, sum(s.n)
    from waiting w cross join lateral (values (w.status, -1), ('FAILED'::execution_status, 1)) as s (status, n)
    where w.is_over
    group by 1, 2, 3, 4, 5
)
update executions e
set status = case when w.is_over then 'FAILED'::execution_status else e.status end,
    wait_reason = case when not w.is_over then 'worker' end, wait_until = null,
    wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1,
    finished_at = case when w.is_over then w.now end,
    failure_class = case when w.is_over then 'permanent' end,
    failure_code = case when w.is_over then 'deadline_exceeded' end
from waiting w left join closed on closed.id = w.id
where e.id = w.id
returning e.id as "id!", e.queue as "queue!", e.status = 'FAILED' as "is_over!"
