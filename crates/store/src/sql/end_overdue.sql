-- Ends executions past their deadline that nothing else ended: those of $1 that no worker holds, and those of $2 whose
-- worker let `active_until` pass by more than $3 seconds.
with now as materialized (
    select longhaul_now() as now
),
due as materialized (
    select unnest($1::uuid[] || $2::uuid[]) as id
),
late as materialized (
    select e.id, e.tenant_id, e.definition_key, e.agent_key, e.created_at, e.status, e.event_seq, e.attempt,
        e.worker_id,
        e.lease_token, e.claimed_at, now.now
    from now, due join executions e on e.id = due.id
    -- Not by `finished_at is null`: a plan made while few executions were open would scan all open ones.
    where e.status in ('PENDING', 'IN_PROGRESS')
        and (
            e.worker_id is null and e.deadline_at <= now.now
            or e.id = any ($2) and e.active_until < now.now - $3::float8 * interval '1 second'
        )
        and (e.parent_id is null or longhaul_try_lock(e.parent_id))
    order by e.id
    for update of e skip locked
),
ended as (
    insert into attempts (
        execution_id, number, worker_id, lease_token, started_at, ended_at, outcome, failure_class, failure_code
    )
    select id, attempt, worker_id, lease_token, claimed_at, now, 'lost', 'permanent', 'deadline_exceeded' from late
    where worker_id is not null
),
gone as (
    select late.id, longhaul_unpark(late.id), longhaul_close_requests(late.id) from late
),
no_deadline as (
    delete from deadlines d using late where d.execution_id = late.id
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now, 'failed', jsonb_build_object('failure_code', 'deadline_exceeded') from late
),
said as (
    update execution_payloads p set failure_summary = 'the deadline passed' from late where p.execution_id = late.id
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select l.tenant_id, l.definition_key, l.agent_key, (l.created_at at time zone 'UTC')::date, s.status, sum(s.n)
    from late l cross join lateral (values (l.status, -1), ('FAILED'::execution_status, 1)) as s (status, n)
    group by 1, 2, 3, 4, 5
)
update executions e
set status = 'FAILED', wait_reason = null, wait_until = null, worker_id = null, active_until = null,
    finished_at = l.now,
    wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1, failure_class = 'permanent',
    failure_code = 'deadline_exceeded'
from late l join gone on gone.id = l.id
where e.id = l.id
returning e.id as "id!"
