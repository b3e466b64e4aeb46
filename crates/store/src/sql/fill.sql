-- Rows for `longhaul bench lists`: one tenant, spread over a month, in the proportions of a busy installation.
-- Plain inserts without payload or history.
with numbered as (
    select n, longhaul_now() - (n % 2592000) * interval '1 second' as at from generate_series(1, $2::int) n
)
insert into executions (
    id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id, queue, serve_key, priority,
    metadata,
    created_at, deadline_at, active_timeout, status, wait_reason, wait_until, started_at, finished_at, failure_class,
    failure_code, worker_id, lease_token
)
select
    overlay(longhaul_uuid_floor(at)::text placing lpad(to_hex(n), 12, '0') from 25 for 12)::uuid, $1::uuid,
    'definition-' || n % 50, $1::uuid, 'agent-' || n % 20, $1::uuid, 'queue-' || n % 5, '', 5,
    case when n % 10 = 0 then jsonb_build_object('customer', 'c' || n % 5000) else '{}' end,
    at, at + interval '30 days', '1 hour',
    case when n % 100 < 3 then 'PENDING' when n % 100 < 5 then 'IN_PROGRESS' when n % 100 < 15 then 'FAILED'
        else 'FINISHED' end::execution_status,
    case when n % 100 < 3 then 'worker' when n % 100 = 3 then 'retry_backoff' end,
    case when n % 100 = 3 then at + interval '10 seconds' end,
    case when n % 100 >= 3 then at end,
    case when n % 100 >= 5 then at + interval '1 minute' end,
    case when n % 100 between 5 and 14 then 'permanent' end,
    case when n % 100 between 5 and 14 then case when n % 1000 = 5 then 'crash_loop' else 'validation_failed' end end,
    case when n % 100 = 4 then $1::uuid end, case when n % 100 = 4 then $1::uuid end
from numbered
