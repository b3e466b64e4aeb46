-- Writes of running attempts, for many executions at once: steps, messages, events, counters and settlements, fenced
-- by the worker's row and by each lease. A write is applied only if it is the next of its lease, so a repeated write
-- changes nothing. `recorded` and `settled` stand in conclude.sql as well (docs/design/journal.md).
with me as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
now as materialized (
    select longhaul_now() as now from me
),
item as (
    select * from unnest($2::journal_write[])
),
held as materialized (
    select e.id, e.event_seq, e.attempt
    from me, item join executions e on e.id = item.execution_id
    -- No index answers this form of `=`: by a plan made for few rows the index of held executions would be read
    -- whole, for each item (ADR 0024).
    where e.worker_id is not distinct from $1 and e.lease_token = item.token and e.lease_write = item.write - 1
    order by e.id
    for update of e skip locked
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
told as (
    insert into events (execution_id, seq, at, kind, data)
    select held.id, held.event_seq + event.number, now.now, event.kind, event.data
    from now, unnest($4::journal_event[]) as event join held on held.id = event.execution_id
),
settled as (
    -- The reservation alone: an update of the budget's row would make the executions of one tree wait for each other.
    update reservations r
    set state = 'settled', charged_cost = case when settlement.is_estimate then r.cost else settlement.cost end,
        charged_tokens = case when settlement.is_estimate then r.tokens else settlement.tokens end,
        charged_calls = settlement.calls, is_estimate = settlement.is_estimate
    from unnest($5::journal_settlement[]) as settlement join held on held.id = settlement.execution_id
    where r.execution_id = held.id and r.step_key = settlement.step_key and r.state = 'open'
)
update executions e
set lease_write = item.write, event_seq = e.event_seq + item.events, turns = e.turns + item.turns,
    calls = e.calls + item.calls, input_tokens = e.input_tokens + item.input_tokens,
    output_tokens = e.output_tokens + item.output_tokens, cached_tokens = e.cached_tokens + item.cached_tokens,
    cache_write_tokens = e.cache_write_tokens + item.cache_write_tokens, cost = e.cost + item.cost,
    uncosted_turns = e.uncosted_turns + item.uncosted_turns,
    -- Events and intents come again with every attempt, also with attempts that kill their worker: they are no
    -- progress.
    crash_count = case when item.is_progress then 0 else e.crash_count end,
    lane = case when item.is_progress then 0 else e.lane end
from item join held on held.id = item.execution_id
where e.id = held.id
returning e.id as "id!", e.cancel_requested_at is not null as "cancel_requested!", e.wake_seq as "wake_seq!"
