-- Ends leases, many at once: finish, fail, park (retry included) and release, each with what its attempt last wrote.
-- A cancel that came meanwhile turns everything but a finish into FAILED `cancelled`; a wake that came meanwhile
-- turns a park into runnable (core-rules 3, 17). All else that an end does is in `longhaul_execution_over`
-- (docs/design/end.md); the caller hands over the slots that it cleared. `recorded` and `settled` are those of
-- record.sql.
with me as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
now as materialized (
    select longhaul_now() as now from me
),
item as (
    select * from unnest($2::lease_end[])
),
held as materialized (
    select e.id, e.tenant_id, e.definition_key, e.agent_key, e.created_at, e.attempt, e.claimed_at, e.deadline_at,
        e.cancel_requested_at, e.wake_seq, e.event_seq
    from me, item join executions e on e.id = item.execution_id
    where e.worker_id is not distinct from $1 and e.lease_token = item.token
        and (item.write is null or e.lease_write = (item.write).write - 1)
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
        held.*, item.token, item.output, item.failure_detail, item.write, now.now, cancelled, woken,
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
    from now, item join held on held.id = item.execution_id
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
recorded as (
    insert into steps as s (
        execution_id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, failure_code,
        input_tokens, output_tokens, cached_tokens, cache_write_tokens, cost, started_at, finished_at
    )
    select held.id, step.seq, held.attempt, step.kind, step.state, step.key, step.occurrence, step.name, step.appends,
        step.body, step.preview, step.failure_code, step.input_tokens, step.output_tokens, step.cached_tokens,
        step.cache_write_tokens, step.cost,
        now.now - step.took_ms * interval '1 millisecond', case when step.state <> 'intent' then now.now end
    from now, unnest($3::journal_step[]) as step join held on held.id = step.execution_id
    on conflict (execution_id, seq) do update
    set state = excluded.state, name = excluded.name, appends = excluded.appends, body = excluded.body,
        preview = excluded.preview, failure_code = excluded.failure_code, input_tokens = excluded.input_tokens,
        output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
        cache_write_tokens = excluded.cache_write_tokens, cost = excluded.cost, started_at = excluded.started_at,
        finished_at = excluded.finished_at
    where s.state = 'intent'
),
settled as (
    -- The reservation alone: an update of the budget's row would make the executions of one tree wait for each other.
    update reservations r
    set state = 'settled', charged_cost = case when settlement.is_estimate then r.cost else settlement.cost end,
        charged_tokens = case when settlement.is_estimate then r.tokens else settlement.tokens end,
        charged_calls = settlement.calls, is_estimate = settlement.is_estimate
    from unnest($5::journal_settlement[]) as settlement join held on held.id = settlement.execution_id
    where r.execution_id = held.id and r.step_key = settlement.step_key and r.state = 'open'
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select held.id, held.event_seq + event.number, now.now, event.kind, event.data
    from now, unnest($4::journal_event[]) as event join held on held.id = event.execution_id
    union all
    select id, event_seq + coalesce((write).events, 0) + 1, now,
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
    -- A breaker releases the executions that wait for a provider, in growing portions; time alone ends only their
    -- patience.
    select id, tenant_id, wait_reason,
        coalesce(
            case when wait_reason = 'provider_down' then
                (
                    select least(w.give_up_at, verdict.deadline_at) from provider_waits w
                    where w.execution_id = verdict.id
                )
            end,
            wait_until, deadline_at
        )
    from verdict
    where wait_reason is not null and wait_reason <> 'worker'
    -- There is none. Were there one all the same, the wait that it tells of is over, and this one must not fail for it.
    on conflict (execution_id) do update set wait_reason = excluded.wait_reason, wait_until = excluded.wait_until
),
open_request as materialized (
    -- By the statement's snapshot: a function call for every end would cost the hot path more than its worth. What is
    -- being written beside it is closed at its expiry.
    select r.id, verdict.now from verdict join human_requests r on r.execution_id = verdict.id
    where r.state = 'waiting' and verdict.status <> 'IN_PROGRESS'
    for update of r skip locked
),
closed as (
    update human_requests r set state = 'closed', decided_at = o.now from open_request o where r.id = o.id
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
    event_seq = e.event_seq + coalesce((v.write).events, 0) + 1,
    turns = e.turns + coalesce((v.write).turns, 0),
    calls = e.calls + coalesce((v.write).calls, 0),
    input_tokens = e.input_tokens + coalesce((v.write).input_tokens, 0),
    output_tokens = e.output_tokens + coalesce((v.write).output_tokens, 0),
    cached_tokens = e.cached_tokens + coalesce((v.write).cached_tokens, 0),
    cache_write_tokens = e.cache_write_tokens + coalesce((v.write).cache_write_tokens, 0),
    cost = e.cost + coalesce((v.write).cost, 0),
    uncosted_turns = e.uncosted_turns + coalesce((v.write).uncosted_turns, 0),
    crash_count = case when (v.write).is_progress then 0 else e.crash_count end,
    lane = case when (v.write).is_progress then 0 else e.lane end
from verdict v
where e.id = v.id
returning e.id as "id!", e.status::text as "status!", e.wait_reason, e.queue as "queue!",
    e.parent_id as "parent: ExecutionId",
    e.input_tokens + e.output_tokens as "tokens!", e.slot_keys,
    e.finished_at is not null and (
        e.project_id is not null or e.schedule_id is not null or e.session_id is not null or e.has_memory
        or exists (select from end_subscriptions s where s.tenant_id = e.tenant_id)
    ) as "is_followed!"
