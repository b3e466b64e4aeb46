-- Ends leases, many at once: finish, fail, park (retry included) and release. A cancel that came meanwhile turns everything but a
-- finish into FAILED `cancelled`; a wake that came meanwhile turns a park into runnable (core-rules 3, 17). The trigger
-- `executions_slots` clears the slots it held; whoever runs this hands them over afterwards.
with me as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
now as materialized (
    select longhaul_now() as now from me
),
item as (
    select * from unnest(
        $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
        $11::float8[], $12::int[], $13::int[], $14::text[]
    ) as item (
        id, token, verb, output, failure_class, failure_code, failure_summary, failure_detail, wait_reason,
        wait_seconds, wake_seq, spent_seq, outcome
    )
),
held as materialized (
    select e.id, e.tenant_id, e.definition_key, e.agent_key, e.created_at, e.attempt, e.claimed_at, e.deadline_at,
        e.cancel_requested_at, e.wake_seq, e.event_seq
    from me, item join executions e on e.id = item.id
    where e.worker_id is not distinct from $1 and e.lease_token = item.token
        -- The end of a child changes its parent.
        and (
            e.parent_id is null
            or (item.verb in ('park', 'release') and e.cancel_requested_at is null)
            or longhaul_try_lock(e.parent_id)
        )
    order by e.id
    for update of e skip locked
),
verdict as materialized (
    select
        held.*, item.token, item.output, item.failure_detail, item.spent_seq, now.now, cancelled, woken,
        case
            when item.verb = 'finish' then 'FINISHED'
            when item.verb = 'fail' or cancelled then 'FAILED'
            else 'IN_PROGRESS'
        end::execution_status as status,
        case when cancelled then 'cancelled' else item.outcome end as outcome,
        case when cancelled then 'permanent' else item.failure_class end as failure_class,
        case when cancelled then 'cancelled' else item.failure_code end as failure_code,
        case when cancelled then 'cancelled on request' else item.failure_summary end as failure_summary,
        case when item.verb in ('park', 'release') and not cancelled then
            case when item.verb = 'release' or woken then 'worker' else item.wait_reason end
        end as wait_reason,
        case when item.verb = 'park' and not cancelled and not woken then
            least(now.now + item.wait_seconds * interval '1 second', held.deadline_at)
        end as wait_until,
        (item.verb = 'park' and item.outcome = 'retrying' and not cancelled)::int as retried
    from now, item join held on held.id = item.id
    cross join lateral (
        select item.verb <> 'finish' and held.cancel_requested_at is not null as cancelled,
            -- A backoff waits for its time and for nothing that a wake could tell.
            item.verb = 'park' and item.outcome <> 'retrying' and item.wake_seq <> held.wake_seq as woken
    ) as meanwhile
),
ended as (
    insert into attempts (
        execution_id, number, worker_id, lease_token, started_at, ended_at, outcome, failure_class, failure_code,
        failure_summary, wait_reason
    )
    select id, attempt, $1, token, claimed_at, now, outcome, failure_class, failure_code, failure_summary, wait_reason
    from verdict
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select id, event_seq + 1, now,
        case status when 'FINISHED' then 'finished' when 'FAILED' then 'failed' else
            case when wait_reason = 'worker' then 'released' when retried = 1 then 'retrying' else 'parked' end
        end,
        jsonb_strip_nulls(jsonb_build_object(
            'attempt', attempt, 'outcome', outcome, 'failure_class', failure_class, 'failure_code', failure_code,
            'failure_summary', failure_summary, 'wait_reason', wait_reason, 'wait_until', wait_until
        ))
    from verdict
),
said as (
    update execution_payloads p
    set output = verdict.output::json,
        failure_summary = case when verdict.status = 'FAILED' then verdict.failure_summary end,
        failure_detail = case when verdict.status = 'FAILED' then verdict.failure_detail::json end
    from verdict
    where p.execution_id = verdict.id and verdict.status <> 'IN_PROGRESS'
),
waits as (
    insert into parked (execution_id, tenant_id, wait_reason, wait_until)
    -- What waits for a provider is let go by its breaker, in growing portions; time alone ends only its patience.
    select id, tenant_id, wait_reason,
        coalesce(
            case when wait_reason = 'provider_down' then
                (select least(w.give_up_at, verdict.deadline_at) from provider_waits w where w.execution_id = verdict.id)
            end,
            wait_until, deadline_at
        )
    from verdict
    where wait_reason is not null and wait_reason <> 'worker'
    -- There is none. Were there one all the same, the wait that it tells of is over, and this one must not fail for it.
    on conflict (execution_id) do update set wait_reason = excluded.wait_reason, wait_until = excluded.wait_until
),
spent as (
    update steps s set state = 'spent'
    from verdict
    where s.execution_id = verdict.id and s.seq = verdict.spent_seq
),
closed as (
    -- By the statement's snapshot: a function call for every end would cost the hot path more than its worth. What is being
    -- written beside it is closed at its expiry.
    update human_requests r set state = 'closed', decided_at = verdict.now
    from verdict
    where r.execution_id = verdict.id and r.state = 'waiting' and verdict.status <> 'IN_PROGRESS'
),
no_deadline as (
    delete from deadlines d using verdict where d.execution_id = verdict.id and verdict.status <> 'IN_PROGRESS'
),
counts as (
    insert into execution_count_changes (tenant_id, definition_key, agent_key, day, status, n)
    select v.tenant_id, v.definition_key, v.agent_key, (v.created_at at time zone 'UTC')::date, s.status, sum(s.n)
    from verdict v cross join lateral (values ('IN_PROGRESS'::execution_status, -1), (v.status, 1)) as s (status, n)
    where v.status <> 'IN_PROGRESS'
    group by 1, 2, 3, 4, 5
)
update executions e
set status = v.status, wait_reason = v.wait_reason, wait_until = v.wait_until, worker_id = null, active_until = null,
    finished_at = case when v.status <> 'IN_PROGRESS' then v.now end,
    failure_class = case when v.status = 'FAILED' then v.failure_class end,
    failure_code = case when v.status = 'FAILED' then v.failure_code end,
    transient_retries = e.transient_retries + v.retried * (v.failure_class is not distinct from 'transient')::int,
    tool_error_retries = e.tool_error_retries + v.retried * (v.failure_class is not distinct from 'tool_error')::int,
    llm_error_retries = e.llm_error_retries + v.retried * (v.failure_class is not distinct from 'llm_error')::int,
    active_time = e.active_time + (v.now - v.claimed_at),
    event_seq = e.event_seq + 1
from verdict v
where e.id = v.id
returning e.id as "id!", e.status::text as "status!", e.wait_reason, e.queue as "queue!", e.parent_id,
    e.input_tokens + e.output_tokens as "tokens!", e.slot_keys
