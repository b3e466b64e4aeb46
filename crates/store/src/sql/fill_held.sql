-- Live workers, and executions that they hold in equal shares: for `longhaul bench sweep`. Straight inserts: these
-- executions have no payload and no history, and nothing of them is due while the benchmark runs.
with worker as materialized (
    select n, gen_random_uuid() as id from generate_series(0, $2::int - 1) n
),
registered as (
    insert into workers (id, host, pid, build, queues, serves, concurrency)
    select id, 'bench', n, 'bench', array['default'], array[''], 1000 from worker
),
beating as (
    insert into worker_heartbeats (worker_id, expires_at, steady_since)
    select id, clock_timestamp() + interval '1 day', clock_timestamp() - interval '1 hour' from worker
)
insert into executions (
    id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
    created_at, deadline_at, active_timeout, status, started_at, worker_id, lease_token, claimed_at, active_until,
    attempt
)
select
    overlay(longhaul_uuid_floor(begun.at)::text placing lpad(to_hex(h), 12, '0') from 25 for 12)::uuid, $1::uuid,
    'bench', $1::uuid, 'bench', $1::uuid, 'default', '', 5, begun.at,
    begun.at + interval '30 days', '1 day', 'IN_PROGRESS', begun.at, worker.id, gen_random_uuid(), begun.at,
    begun.at + interval '1 day', 1
from (select longhaul_now() as at) begun, generate_series(1, $3::int) h join worker on worker.n = h % $2::int
