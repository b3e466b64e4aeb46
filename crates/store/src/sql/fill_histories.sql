-- Payload and history of the copies of an execution.
with copy as materialized (
    select id from executions where id <> $1 order by id
),
payload as (
    insert into execution_payloads (execution_id, input, output, traceparent)
    select copy.id, input, output, traceparent from copy, execution_payloads where execution_id = $1
),
attempt as (
    insert into attempts (execution_id, number, worker_id, lease_token, started_at, ended_at, outcome)
    select copy.id, number, worker_id, lease_token, started_at, ended_at, outcome from copy, attempts
        where execution_id = $1
),
step as (
    insert into steps (
        execution_id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, input_tokens,
        output_tokens, cached_tokens, cache_write_tokens,
        started_at, finished_at, cost
    )
    select copy.id, seq, attempt, kind, state, key, occurrence, name, appends, body, preview, input_tokens,
        output_tokens, cached_tokens, cache_write_tokens,
        started_at, finished_at, cost
    from copy, steps where execution_id = $1
)
insert into events (execution_id, seq, at, kind, data)
select copy.id, seq, at, kind, data from copy, events where execution_id = $1
