-- Copies of an execution, created one after the other over the six days before it, for `longhaul bench throughput
-- --stored`.
insert into executions (
    id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
    metadata, created_at,
    deadline_at, active_timeout, submitted_by, status, started_at, finished_at, lease_write, attempt, wake_seq,
    event_seq, turns, calls,
    input_tokens, output_tokens, cached_tokens, cache_write_tokens, active_time, cost, uncosted_turns
)
select
    overlay(longhaul_uuid_floor(at)::text placing lpad(to_hex(n), 12, '0') from 25 for 12)::uuid, tenant_id,
    definition_key,
    definition_version_id, agent_key, agent_version_id, queue, serve_key, priority, metadata, at,
    deadline_at, active_timeout, submitted_by, status, started_at, finished_at, lease_write, attempt, wake_seq,
    event_seq, turns, calls,
    input_tokens, output_tokens, cached_tokens, cache_write_tokens, active_time, cost, uncosted_turns
from executions e, generate_series(1, $2::int) n,
    lateral (select e.created_at - ($2::int - n + 1) * interval '6 days' / $2::int as at) begun
where id = $1
