-- The endpoint said that there were too many calls at a time: half of those there were, at most once a second.
create or replace function longhaul_provider_throttled(of_provider text, of_model text, of_key text, in_flight int, most int) returns int
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
    now timestamptz := clock_timestamp();
begin
    insert into provider_breakers (provider, model, key) values (of_provider, of_model, of_key) on conflict do nothing;
    select * into b from provider_breakers
    where provider = of_provider and model = of_model and key = of_key
    for no key update;
    if b.concurrency is not null and b.concurrency_at > now - interval '1 second' then
        return b.concurrency;
    end if;
    update provider_breakers
    set concurrency = greatest(1, coalesce(least(concurrency, in_flight), in_flight) / 2),
        concurrency_most = coalesce(most, greatest(concurrency_most, in_flight, 2)), concurrency_at = now
    where provider = of_provider and model = of_model and key = of_key
    returning * into b;
    return b.concurrency;
end
$$;
