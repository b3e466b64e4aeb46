-- :executions executions of ten tenants over 30 days; steps of those of the last two days. Triggers and foreign keys
-- are left out: the rows are as they leave them.
set session_replication_role = replica;

insert into tenants (id, org_id, created_at)
select md5('tenant ' || i)::uuid, 'org-' || i, now() from generate_series(0, 9) i;

do $$
begin
    while longhaul_make_partition('steps', 1) is not null loop end loop;
end
$$;

create temporary table made as
select
    i,
    (
        lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3)
        || '8' || substr(md5(i::text), 4, 15)
    )::uuid as id,
    at,
    case when i > :executions - 500 then 'PENDING' when i % 17 = 0 then 'FAILED' else 'FINISHED' end as status
from (
    select i, now() - interval '30 days' * (1 - i::float8 / :executions) - interval '1 minute' as at
    from generate_series(1, :executions) i
) n;

insert into executions (
    id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
    created_at, deadline_at, active_timeout, status, wait_reason, started_at, finished_at, failure_class, failure_code,
    attempt, turns, calls, input_tokens, output_tokens, cost, active_time
)
select
    id, md5('tenant ' || i % 10)::uuid, 'definition-' || i % 7, md5('d')::uuid, 'agent-' || i % 7, md5('a')::uuid,
    'default', 'agent', 4, at, at + interval '1 hour', interval '30 minutes', status::execution_status,
    case when status = 'PENDING' then case i % 3 when 0 then 'approval' else 'worker' end end,
    case when status <> 'PENDING' then at + interval '1 second' end,
    case when status <> 'PENDING' then at + interval '1 second' * (5 + i % 60) end,
    case when status = 'FAILED' then 'permanent' end,
    case when status = 'FAILED' then 'code_' || i % 5 end,
    case when status = 'PENDING' then 0 else 1 end, 3, 2, 3000, 300, 9000000, interval '4 seconds'
from made;

insert into execution_payloads (execution_id, input, output)
select id, '{"prompt": "a few words"}', case when status = 'FINISHED' then '{"answer": "a few more words"}'::json end
from made;

insert into steps (
    execution_id, seq, attempt, kind, state, key, name, body, input_tokens, output_tokens, cached_tokens, cost,
    started_at, finished_at
)
select
    id, seq, 1, case when seq % 2 = 1 then 'turn' else 'call' end, 'spent', sha256(id::text::bytea),
    case when seq % 2 = 1 then 'model-' || i % 3 else 'tool-' || i % 9 end, repeat('x', 600)::bytea, 1000, 100, 200,
    3000000, at, at + interval '2 seconds'
from made, generate_series(1, 5) seq
where at > now() - interval '2 days' and status <> 'PENDING';

insert into execution_counts (tenant_id, definition_key, agent_key, day, status, n)
select tenant_id, definition_key, agent_key, created_at::date, status, count(*) from executions group by 1, 2, 3, 4, 5;

set session_replication_role = origin;
vacuum (analyze) executions, execution_payloads, steps, execution_counts, tenants;
