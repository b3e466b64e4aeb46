-- Gives the execution $2, stored in this transaction, its place in the session $1: the turn if $5, otherwise the end of
-- the line. $3 is its number, $4 the policy that was applied.
with turn as (
    insert into session_turns (session_id, number, execution_id, state, on_busy)
    values ($1, $3, $2, case when $5::bool then 'running' else 'queued' end, $4)
),
session as (
    update sessions
    set turns = $3, running = case when $5 then $2 else running end, active_at = longhaul_now(), ended_at = null
    where id = $1
),
budget as (
    select root_id from budgets where root_id = $1
),
waits as (
    insert into parked (execution_id, tenant_id, wait_reason, wait_until)
    select id, tenant_id, 'concurrency_limit', deadline_at from executions where id = $2 and not $5
    -- One that quarantine holds back waits already; it is held back again when its turn comes.
    on conflict (execution_id) do update set wait_reason = excluded.wait_reason, wait_until = excluded.wait_until
)
update executions
set session_id = $1, has_budget = has_budget or exists (select from budget), budget_id = (select root_id from budget),
    wait_reason = case when $5 then wait_reason else 'concurrency_limit' end,
    wait_until = case when $5 then wait_until end
where id = $2
