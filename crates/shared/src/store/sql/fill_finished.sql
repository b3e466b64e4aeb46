-- Executions of one turn that have FINISHED, one after the other over the last six days, for `longhaul bench throughput --stored`.
insert into executions (
    id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority, metadata, created_at,
    deadline_at, active_timeout, status, started_at, finished_at, attempt, turns, event_seq
)
select
    overlay(longhaul_uuid_floor(at)::text placing lpad(to_hex(n), 12, '0') from 25 for 12)::uuid, $1::uuid,
    'definition-' || n % 50, $1::uuid, 'agent-' || n % 20, $1::uuid, 'default', '', 5,
    case when n % 10 = 0 then jsonb_build_object('customer', 'c' || n % 5000) else '{}' end,
    at, at + interval '30 days', '1 hour', 'FINISHED', at, at + interval '1 second', 1, 1, 4
from (
    select n, longhaul_now() - ($2::int - n) * interval '6 days' / $2::int as at from generate_series(1, $2::int) n
) numbered
