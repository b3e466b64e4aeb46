-- Resets a breaker for an operator: releases one execution, then two, four, … . Executions that wait for a call
-- to end are released too; the configured rate limits stay in force. Lock order: the breaker's row, then
-- executions.
create or replace function longhaul_reset_provider(of_provider text, of_model text, of_key text) returns setof uuid
    language plpgsql volatile
    as $$
begin
    perform from provider_breakers
    where provider = of_provider and model = of_model and key = of_key
    for no key update;
    update provider_breakers
    set state = 'recovering', cause = 'operator', open_until = null, is_stated = false, failed_probes = 0, portion = 1,
        released = 0, answered = 0, portion_at = clock_timestamp(),
            cursor_priority = null, cursor_id = null, probe_execution = null, probe_token = null,
            probe_until = null
    where provider = of_provider and model = of_model and key = of_key and state <> 'closed';
    update provider_breakers
    set concurrency = null, calls_per_second = null, concurrency_at = null, closed_until = null,
        served_per_second = null
    where provider = of_provider and model = of_model and key = of_key;
    return query select * from longhaul_release_waiters(of_provider, of_model, of_key, 1);
    return query select * from longhaul_wake_for_slot(of_provider, of_model, of_key, 200);
end
$$;
