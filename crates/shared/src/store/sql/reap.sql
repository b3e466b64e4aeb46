-- Takes back what dead workers hold, a chunk at a time. An execution that was held at three deaths, the last one with no other
-- suspect in the same process, is the cause and ends as FAILED `crash_loop` (core-rules 5); all others become runnable.
with now as materialized (
    select longhaul_now() as now
),
orphan as materialized (
    select e.id, e.worker_id, e.lease_token, e.attempt, e.claimed_at, e.tenant_id, e.definition_key, e.agent_key, e.created_at,
        e.event_seq, e.cancel_requested_at, e.crash_count + 1 as crashes,
        (select count(*) from executions s where s.worker_id = e.worker_id and s.crash_count >= 2) as suspects
    from executions e
    where e.worker_id in (select id from workers where dead_at is not null)
        and (e.parent_id is null or longhaul_try_lock(e.parent_id))
    -- Suspects first, so that one chunk sees all of a worker.
    order by e.crash_count desc, e.id
    limit $1
    for update of e skip locked
),
verdict as materialized (
    select orphan.*, now.now,
        case
            when cancel_requested_at is not null then 'cancelled'
            when crashes >= 3 and suspects = 1 then 'crash_loop'
        end as failure_code
    from orphan, now
),
ended as (
    insert into attempts (
        execution_id, number, worker_id, lease_token, started_at, ended_at, outcome, failure_class, failure_code, wait_reason
    )
    select id, attempt, worker_id, lease_token, claimed_at, now, 'lost', case when failure_code is not null then 'permanent' end,
        failure_code, case when failure_code is null then 'worker' end
    from verdict
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, case when failure_code is null then 'lease_lost' else 'failed' end,
        jsonb_strip_nulls(jsonb_build_object(
            'attempt', attempt, 'worker_id', worker_id, 'crashes', crashes, 'failure_code', failure_code
        ))
    from verdict
),
said as (
    update execution_payloads p
    set failure_summary = case verdict.failure_code
        when 'cancelled' then 'cancelled on request'
        else 'the execution was running when three workers died, the last time as the only suspect'
    end
    from verdict
    where p.execution_id = verdict.id and verdict.failure_code is not null
),
closed as (
    update human_requests r set state = 'closed', decided_at = verdict.now
    from verdict
    where r.execution_id = verdict.id and r.state = 'waiting' and verdict.failure_code is not null
),
no_deadline as (
    delete from deadlines d using verdict where d.execution_id = verdict.id and verdict.failure_code is not null
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select v.tenant_id, v.definition_key, v.agent_key, (v.created_at at time zone 'UTC')::date, s.status, sum(s.n)
    from verdict v, (values ('IN_PROGRESS'::execution_status, -1), ('FAILED'::execution_status, 1)) as s (status, n)
    where v.failure_code is not null
    group by 1, 2, 3, 4, 5
)
update executions e
set status = case when v.failure_code is null then 'IN_PROGRESS' else 'FAILED' end::execution_status,
    wait_reason = case when v.failure_code is null then 'worker' end,
    worker_id = null, active_until = null,
    finished_at = case when v.failure_code is not null then v.now end,
    failure_class = case when v.failure_code is not null then 'permanent' end,
    failure_code = v.failure_code,
    crash_count = v.crashes,
    lane = case when v.crashes >= 3 then 2 when v.crashes = 2 then 1 else 0 end,
    active_time = e.active_time + (v.now - v.claimed_at),
    event_seq = e.event_seq + 1
from verdict v
where e.id = v.id
returning e.id as "id!", e.queue as "queue!", v.worker_id as "worker_id!", e.failure_code
