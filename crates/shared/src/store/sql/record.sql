-- Writes of running attempts, many executions at once: steps, messages, events and counters, fenced by the worker's row and
-- each lease. A write is applied only if it is the next of its lease, so a repeated one changes nothing.
with me as materialized (
    select id from workers where id = $1 and dead_at is null and expires_at > clock_timestamp() for key share
),
now as materialized (
    select longhaul_now() as now from me
),
item as (
    select * from unnest($2::uuid[], $3::uuid[], $4::int[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::bigint[])
        as item (id, token, write, events, turns, calls, input_tokens, output_tokens)
),
held as materialized (
    select e.id, e.event_seq, e.attempt
    from me, item join executions e on e.id = item.id
    where e.worker_id = $1 and e.lease_token = item.token and e.lease_write = item.write - 1
    order by e.id
    for update of e skip locked
),
recorded as (
    insert into steps as s (
        execution_id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, failure_code,
        input_tokens, output_tokens, cached_tokens, started_at, finished_at
    )
    select held.id, step.seq, held.attempt, step.kind, step.state, step.key, step.occurrence, step.name,
        -- An array of hashes travels as one string of 32-byte pieces.
        array(select substring(step.appends from i * 32 + 1 for 32) from generate_series(0, length(step.appends) / 32 - 1) i),
        step.body, step.preview, step.failure_code, step.input_tokens, step.output_tokens, step.cached_tokens,
        now.now - step.took_ms * interval '1 millisecond', case when step.state <> 'intent' then now.now end
    from now, unnest(
        $10::uuid[], $11::int[], $12::text[], $13::text[], $14::bytea[], $15::int[], $16::text[], $17::bytea[], $18::bytea[],
        $19::text[], $20::text[], $21::int[], $22::int[], $23::int[], $24::float8[]
    ) as step (
        execution_id, seq, kind, state, key, occurrence, name, appends, body, preview, failure_code, input_tokens,
        output_tokens, cached_tokens, took_ms
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
    from unnest($25::uuid[], $26::bytea[], $27::bytea[]) as message (execution_id, hash, body)
    join held on held.id = message.execution_id
    on conflict do nothing
),
told as (
    insert into events (execution_id, seq, at, kind, data)
    select held.id, held.event_seq + event.number, now.now, event.kind, event.data
    from now, unnest($28::uuid[], $29::int[], $30::text[], $31::jsonb[]) as event (execution_id, number, kind, data)
    join held on held.id = event.execution_id
)
update executions e
set lease_write = item.write, event_seq = e.event_seq + item.events, turns = e.turns + item.turns,
    calls = e.calls + item.calls, input_tokens = e.input_tokens + item.input_tokens,
    output_tokens = e.output_tokens + item.output_tokens, crash_count = 0, lane = 0
from item join held on held.id = item.id
where e.id = item.id
returning e.id as "id!", e.cancel_requested_at is not null as "cancel_requested!", e.wake_seq as "wake_seq!"
