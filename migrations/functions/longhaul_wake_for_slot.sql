-- A call to an endpoint with as many calls as may be has ended: the next `n` in line are let go.
create or replace function longhaul_wake_for_slot(of_provider text, of_model text, of_key text, n int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    w provider_waits;
begin
    for w in
        select * from provider_waits
        where provider = of_provider and model = of_model and key = of_key and reason = 'rate_limit' and pass_at is null
            and not is_released
        order by priority desc, execution_id
        limit n
        for update skip locked
    loop
        if longhaul_wake(w.execution_id, 'rate_limit') then
            update provider_waits set is_released = true where execution_id = w.execution_id;
            return next w.execution_id;
        else
            delete from provider_waits where execution_id = w.execution_id;
        end if;
    end loop;
end
$$;
