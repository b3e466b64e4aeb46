-- Cancels executions. One that no worker holds ends as FAILED `cancelled`; a held one gets the flag, once. No
-- row: it is over, was flagged before, or does not exist. All is decided by the row under its lock, so a claim or
-- park in between is seen.
--
-- $2 is the tenant that asks: the statement waits for its rows, and in the trigger for the parent of one that
-- ends. $2 is null if the parents end: a parent is then locked first and nothing is waited for; locked rows are
-- found again later.
with asked as materialized (
    select e.id
    from executions e
    where e.id = any ($1) and e.finished_at is null and (e.worker_id is null or e.cancel_requested_at is null)
        and e.tenant_id = $2
    order by e.id
    for no key update of e
),
orphaned as materialized (
    select e.id
    from executions e
    where e.id = any ($1) and e.finished_at is null and (e.worker_id is null or e.cancel_requested_at is null)
        and $2::uuid is null and longhaul_try_lock(e.parent_id)
    order by e.id
    for no key update of e skip locked
),
target as (
    select id from asked union all select id from orphaned
),
cancelled as (
    update executions e
    set cancel_requested_at = coalesce(e.cancel_requested_at, now.now),
        wake_seq = e.wake_seq + 1,
        event_seq = e.event_seq + 1,
        status = case when e.worker_id is null then 'FAILED' else e.status end,
        failure_class = case when e.worker_id is null then 'permanent' end,
        failure_code = case when e.worker_id is null then 'cancelled' end,
        finished_at = case when e.worker_id is null then now.now end,
        wait_reason = null,
        wait_until = null
    from target, (select longhaul_now() as now) now
    where e.id = target.id
    returning e.id, e.tenant_id, e.definition_key, e.agent_key, e.created_at, e.event_seq, now.now,
        e.finished_at is not null as ended,
        -- A status leaves PENDING with the first claim, which sets `started_at`.
        case when e.started_at is null then 'PENDING'::execution_status else 'IN_PROGRESS' end as old_status
),
ended as (
    select * from cancelled where ended
),
payload as (
    update execution_payloads p set failure_summary = $3 from ended where p.execution_id = ended.id
),
unparked as (
    select id, longhaul_unpark(id), longhaul_close_requests(id) from ended
),
undeadlined as (
    delete from deadlines using ended where deadlines.execution_id = ended.id
),
event as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq, now, case when ended then 'failed' else 'cancel_requested' end,
        case when ended then jsonb_build_object('failure_class', 'permanent', 'failure_code', 'cancelled') end
    from cancelled
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select tenant_id, definition_key, agent_key, (created_at at time zone 'UTC')::date, change.status, sum(change.n)
    from ended, lateral (values (old_status, -1), ('FAILED'::execution_status, 1)) as change (status, n)
    group by 1, 2, 3, 4, 5
)
select cancelled.id as "id!", ended as "ended!" from cancelled left join unparked using (id)
