-- Puts an execution in the line of an endpoint, or moves it there; the time it has waited already counts. An
-- execution that the breaker let go stays so while it waits for the rate of the same endpoint.
create or replace function longhaul_wait_for_provider(
    execution uuid, of_provider text, of_model text, of_key text, why text, patience float8, pass timestamptz
) returns provider_waits
    language sql volatile
    as $$
        insert into provider_waits (execution_id, provider, model, key, reason, priority, since, give_up_at, pass_at)
        select e.id, of_provider, of_model, of_key, why, e.priority, now.now, now.now + patience * interval '1 second', pass
        from executions e, (select longhaul_now() as now) as now
        where e.id = execution
        on conflict (execution_id) do update
        set provider = excluded.provider, model = excluded.model, key = excluded.key, reason = excluded.reason,
            since = longhaul_waiting_since(provider_waits, of_provider, of_model, of_key),
            give_up_at = longhaul_waiting_since(provider_waits, of_provider, of_model, of_key) + patience * interval '1 second',
            pass_at = excluded.pass_at, is_released = false,
            is_let_go = provider_waits.is_let_go and excluded.reason = 'rate_limit'
                and (provider_waits.provider, provider_waits.model, provider_waits.key) = (of_provider, of_model, of_key)
        returning *
    $$;
