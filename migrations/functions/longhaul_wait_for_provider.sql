-- Puts an execution in the line of an endpoint, or moves it there. Time that the same call has already waited
-- counts. An execution that the breaker released stays released (`is_let_go`) while it waits for the rate of the
-- same endpoint.
create or replace function longhaul_wait_for_provider(
    execution uuid, of_provider text, of_model text, of_key text, why text, patience float8, pass timestamptz,
    of_call bigint
) returns provider_waits
    language sql volatile
    as $$
        insert into provider_waits as w (execution_id, provider, model, key, reason, priority, since, give_up_at,
            pass_at, call, tenant_id, is_batch)
        select e.id, of_provider, of_model, of_key, why, e.priority, begun.at,
            begun.at + patience * interval '1 second', pass, of_call, e.tenant_id, e.queue <> 'interactive'
        from executions e
        left join provider_waits o on o.execution_id = e.id
        cross join lateral (
            select case when o.execution_id is null or o.call <> of_call then longhaul_now()
                else longhaul_waiting_since(o, of_provider, of_model, of_key) end as at
        ) begun
        where e.id = execution
        on conflict (execution_id) do update
        set tenant_id = excluded.tenant_id, is_batch = excluded.is_batch,
            provider = excluded.provider, model = excluded.model, key = excluded.key, reason = excluded.reason,
            since = excluded.since, give_up_at = excluded.give_up_at, pass_at = excluded.pass_at, is_released = false,
            is_let_go = w.is_let_go and excluded.reason = 'rate_limit' and (w.call <> excluded.call) is not true
                and (w.provider, w.model, w.key) = (of_provider, of_model, of_key),
            throttles = case when w.call <> excluded.call then 0 else w.throttles end,
            call = coalesce(excluded.call, w.call)
        returning *
    $$;
