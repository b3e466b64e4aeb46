-- Writes of running attempts, many executions at once: steps, messages, events, counters and what was reserved, fenced by the worker's row and
-- each lease. A write is applied only if it is the next of its lease, so a repeated one changes nothing.
with me as materialized (
    select id from workers where id = $1 and dead_at is null for key share
),
now as materialized (
    select longhaul_now() as now from me
),
item as (
    select * from unnest(
        $2::uuid[], $3::uuid[], $4::int[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::bigint[], $10::bigint[], $11::int[],
        $41::bool[]
    ) as item (id, token, write, events, turns, calls, input_tokens, output_tokens, cost, uncosted_turns, is_progress)
),
held as materialized (
    select e.id, e.event_seq, e.attempt
    from me, item join executions e on e.id = item.id
    -- No index answers this form of `=`: by a plan of a quiet hour the one of what is held would be read whole, for each item (ADR 0024).
    where e.worker_id is not distinct from $1 and e.lease_token = item.token and e.lease_write = item.write - 1
    order by e.id
    for update of e skip locked
),
recorded as (
    insert into steps as s (
        execution_id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, failure_code,
        input_tokens, output_tokens, cached_tokens, cost, started_at, finished_at
    )
    select held.id, step.seq, held.attempt, step.kind, step.state, step.key, step.occurrence, step.name,
        -- An array of hashes travels as one string of 32-byte pieces.
        array(select substring(step.appends from i * 32 + 1 for 32) from generate_series(0, length(step.appends) / 32 - 1) i),
        step.body, step.preview, step.failure_code, step.input_tokens, step.output_tokens, step.cached_tokens, step.cost,
        now.now - step.took_ms * interval '1 millisecond', case when step.state <> 'intent' then now.now end
    from now, unnest(
        $12::uuid[], $13::int[], $14::text[], $15::text[], $16::bytea[], $17::int[], $18::text[], $19::bytea[], $20::bytea[],
        $21::text[], $22::text[], $23::int[], $24::int[], $25::int[], $26::float8[], $27::bigint[]
    ) as step (
        execution_id, seq, kind, state, key, occurrence, name, appends, body, preview, failure_code, input_tokens,
        output_tokens, cached_tokens, took_ms, cost
    )
    join held on held.id = step.execution_id
    on conflict (execution_id, seq) do update
    set state = excluded.state, name = excluded.name, appends = excluded.appends, body = excluded.body,
        preview = excluded.preview, failure_code = excluded.failure_code, input_tokens = excluded.input_tokens,
        output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens, started_at = excluded.started_at,
        finished_at = excluded.finished_at
    where s.state = 'intent'
),
said as (
    insert into messages (execution_id, hash, body)
    select held.id, message.hash, message.body
    from unnest($28::uuid[], $29::bytea[], $30::bytea[]) as message (execution_id, hash, body)
    join held on held.id = message.execution_id
    on conflict do nothing
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select held.id, held.event_seq + event.number, now.now, event.kind, event.data
    from now, unnest($31::uuid[], $32::int[], $33::text[], $34::jsonb[]) as event (execution_id, number, kind, data)
    join held on held.id = event.execution_id
),
settled as (
    -- The reservation alone: the budget's own row would be in everybody's way here.
    update reservations r
    set state = 'settled', charged_cost = case when settlement.is_estimate then r.cost else settlement.cost end,
        charged_tokens = case when settlement.is_estimate then r.tokens else settlement.tokens end,
        charged_calls = settlement.calls, is_estimate = settlement.is_estimate
    from unnest($35::uuid[], $36::bytea[], $37::bigint[], $38::bigint[], $39::int[], $40::bool[])
        as settlement (execution_id, step_key, cost, tokens, calls, is_estimate)
    join held on held.id = settlement.execution_id
    where r.execution_id = held.id and r.step_key = settlement.step_key and r.state = 'open'
)
update executions e
set lease_write = item.write, event_seq = e.event_seq + item.events, turns = e.turns + item.turns,
    calls = e.calls + item.calls, input_tokens = e.input_tokens + item.input_tokens,
    output_tokens = e.output_tokens + item.output_tokens, cost = e.cost + item.cost,
    uncosted_turns = e.uncosted_turns + item.uncosted_turns,
    -- What is only told, or only meant, comes again with every attempt, also with those that kill their worker.
    crash_count = case when item.is_progress then 0 else e.crash_count end,
    lane = case when item.is_progress then 0 else e.lane end
from item join held on held.id = item.id
where e.id = item.id
returning e.id as "id!", e.cancel_requested_at is not null as "cancel_requested!", e.wake_seq as "wake_seq!"
