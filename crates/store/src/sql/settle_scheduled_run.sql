-- Takes note of the run of the schedule $1 that has ended: charges its month with what its budget says it spent, or
-- with all of it if the run was pruned, and returns how it ended.
with over as (
    update schedule_firings f
    set state = 'over', status = e.status::text, failure_code = e.failure_code
    from (
        select f.execution_id, e.status, e.failure_code
        from schedule_firings f left join executions e on e.id = f.execution_id
        where f.schedule_id = $1 and f.state = 'ended' and longhaul_scheduled_run_is_over(f.execution_id)
    ) e
    where f.execution_id = e.execution_id and f.schedule_id = $1 and f.state = 'ended'
    returning f.execution_id, f.month, f.reserved_cost, f.reserved_tokens, f.reserved_calls, e.status,
        e.failure_code
),
spent as (
    select over.month, coalesce(b.spent_cost + coalesce(s.cost, 0), over.reserved_cost) as cost,
        coalesce(b.spent_tokens + coalesce(s.tokens, 0), over.reserved_tokens) as tokens,
        coalesce(b.spent_calls + coalesce(s.calls, 0), over.reserved_calls) as calls
    from over left join budgets b on b.root_id = over.execution_id left join lateral (
        -- Not folded into the budget yet.
        select sum(r.charged_cost) as cost, sum(r.charged_tokens) as tokens, sum(r.charged_calls) as calls
        from reservations r where r.root_id = b.root_id and r.state = 'settled'
    ) s on true
    where over.month is not null
),
charged as (
    insert into schedule_months as m (schedule_id, month, spent_cost, spent_tokens, spent_calls)
    select $1, month, cost, tokens, calls from spent
    on conflict (schedule_id, month) do update
    set spent_cost = m.spent_cost + excluded.spent_cost, spent_tokens = m.spent_tokens + excluded.spent_tokens,
        spent_calls = m.spent_calls + excluded.spent_calls
)
select status::text, failure_code from over
