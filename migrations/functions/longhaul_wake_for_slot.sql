-- Releases up to `n` executions, at most 200, that wait for a call to a full endpoint to end; none while the endpoint
-- takes no calls for longer than an attempt waits in memory. Locks the waits, then executions, with `skip locked`.
create or replace function longhaul_wake_for_slot(of_provider text, of_model text, of_key text, n int)
    returns setof uuid
    language plpgsql volatile
    as $$
declare
    line uuid[];
    done uuid[];
    over uuid[];
begin
    if exists (
        select from provider_breakers
        where provider = of_provider and model = of_model and key = of_key and closed_until > longhaul_now() + interval '2 seconds'
    ) then
        return;
    end if;
    select array_agg(w.execution_id) into line
    from (
        select execution_id from provider_waits
        where provider = of_provider and model = of_model and key = of_key and reason = 'rate_limit' and pass_at is null
            and not is_released
        order by priority desc, execution_id
        limit least(n, 200)
        for update skip locked
    ) w;
    select array_agg(w.id) filter (where not w.is_over), array_agg(w.id) filter (where w.is_over) into done, over
    from longhaul_wake_all(line, 'rate_limit') w;
    update provider_waits set is_released = true where execution_id = any (done);
    delete from provider_waits where execution_id = any (over);
    return query select * from unnest(done);
end
$$;
