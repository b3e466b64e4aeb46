-- The payload and the history of one turn for every execution.
with payload as (
    insert into execution_payloads (execution_id, input, output)
    select id, json_build_object('task', 'Answer.', 'number', md5(id::text)), json_build_object('answer', md5(id::text)) from executions
),
attempt as (
    insert into attempts (execution_id, number, worker_id, lease_token, started_at, ended_at, outcome)
    select id, 1, tenant_id, tenant_id, started_at, finished_at, 'finished' from executions
),
step as (
    insert into steps (
        execution_id, seq, attempt, kind, state, key, appends, body, preview, input_tokens, output_tokens, started_at, finished_at
    )
    select id, seq, 1, kind, 'spent', sha256(convert_to(id::text || seq, 'UTF8')), array[sha256(convert_to(kind, 'UTF8'))],
        convert_to(repeat(md5(id::text || seq), 5), 'UTF8'), 'Answer.', 100, 10, started_at, finished_at
    from executions, (values (1, 'prompt'), (2, 'turn')) as of_each (seq, kind)
),
message as (
    insert into messages (execution_id, hash, body)
    select id, sha256(convert_to(id::text || n, 'UTF8')), convert_to(repeat(md5(id::text || n), 3), 'UTF8')
    from executions, generate_series(1, 3) n
)
insert into events (execution_id, seq, at, kind, data)
select id, seq, started_at, kind, jsonb_build_object('attempt', 1)
from executions, (values (1, 'submitted'), (2, 'claimed'), (3, 'turn'), (4, 'finished')) as of_each (seq, kind)
