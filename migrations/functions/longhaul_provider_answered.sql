-- The endpoint answered one that had to ask whether it may: whatever it said, it is there.
create or replace function longhaul_provider_answered(
    execution uuid, token uuid, of_provider text, of_model text, of_key text
) returns setof uuid
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
begin
    select * into b from provider_breakers
    where provider = of_provider and model = of_model and key = of_key
    for no key update;
    delete from provider_waits where execution_id = execution;
    if b.state = 'open' and b.probe_execution = execution and b.probe_token = token then
        update provider_breakers
        set state = 'recovering', portion = 2, answered = 0, portion_at = clock_timestamp(),
            probe_execution = null, probe_token = null, probe_until = null
        where provider = of_provider and model = of_model and key = of_key;
        return query select * from longhaul_release_waiters(of_provider, of_model, of_key, 2);
    elsif b.state = 'recovering' and (b.answered + 1) * 2 >= b.portion then
        update provider_breakers set portion = b.portion * 2, answered = 0, portion_at = clock_timestamp()
        where provider = of_provider and model = of_model and key = of_key;
        return query select * from longhaul_release_waiters(of_provider, of_model, of_key, b.portion * 2);
    elsif b.state = 'recovering' then
        update provider_breakers set answered = b.answered + 1
        where provider = of_provider and model = of_model and key = of_key;
    end if;
end
$$;
