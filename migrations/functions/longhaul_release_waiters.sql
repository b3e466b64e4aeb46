-- Releases the next `n` waiters of an endpoint in fair order, and closes the breaker when none is left. The caller
-- has locked the breaker's row, always before any execution's. Returns the executions it woke.
create or replace function longhaul_release_waiters(of_provider text, of_model text, of_key text, n int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    w provider_waits;
    released int := 0;
begin
    while released < n loop
        select * into w from provider_waits
        where provider = of_provider and model = of_model and key = of_key and reason = 'provider_down' and not is_released
        order by priority desc, execution_id
        limit 1;
        exit when not found;
        if longhaul_wake(w.execution_id, 'provider_down') then
            update provider_waits set is_released = true, is_let_go = true where execution_id = w.execution_id;
            released := released + 1;
            return next w.execution_id;
        else
            delete from provider_waits where execution_id = w.execution_id;
        end if;
    end loop;
    if not exists (
        select from provider_waits
        where provider = of_provider and model = of_model and key = of_key and reason = 'provider_down' and not is_released
    ) then
        update provider_breakers
        set state = 'closed', open_until = null, is_stated = false, failed_probes = 0, probe_execution = null, probe_token = null,
            probe_until = null, portion = 0, answered = 0
        where provider = of_provider and model = of_model and key = of_key and state = 'recovering';
    end if;
end
$$;
