-- Reserves a slot in the rate limits of an endpoint (GCRA) while Redis is down. Returns the delay in seconds;
-- reserves nothing if the delay exceeds `patience`. A rate of n per minute allows n / 10 at once and spreads the
-- rest, so that no minute sees more than n, or n and the last call where a call takes more tokens than the burst.
-- Later calls wait for the whole of such a call, but at most for a minute's tokens: an estimate of millions would
-- otherwise block them for hours.
create or replace function longhaul_take_rate(
    of_provider text, of_model text, of_key text, execution uuid, requests float8, tokens float8, amount float8,
    patience float8
) returns float8
    language plpgsql volatile
    as $$
declare
    r provider_rates;
    now timestamptz := longhaul_now();
    pass timestamptz;
    wait interval := interval '0';
    request_step interval := coalesce(60 / (0.9 * requests), 0) * interval '1 second';
    token_step interval := coalesce(60 * least(amount, greatest(1, tokens / 10)) / (0.9 * tokens), 0)
        * interval '1 second';
    token_charge interval := coalesce(60 * least(amount, tokens) / (0.9 * tokens), 0) * interval '1 second';
begin
    insert into provider_rates (provider, model, key, requests_at, tokens_at)
    values (of_provider, of_model, of_key, now, now)
    on conflict do nothing;
    select * into r from provider_rates where provider = of_provider and model = of_model and key = of_key
        for no key update;
    -- A slot reserved before, whose time has come.
    delete from provider_waits
    where execution_id = execution and provider = of_provider and model = of_model and key = of_key
        and reason = 'rate_limit'
        and pass_at <= now + interval '50 milliseconds';
    if found then
        return 0;
    end if;
    select pass_at into pass from provider_waits
    where execution_id = execution and provider = of_provider and model = of_model and key = of_key
        and reason = 'rate_limit'
        and pass_at is not null;
    if found then
        return extract(epoch from pass - now);
    end if;
    if requests is not null then
        wait := greatest(wait, r.requests_at + request_step - greatest(1, floor(requests / 10)) * request_step - now);
    end if;
    if tokens is not null then
        wait := greatest(wait, r.tokens_at + token_step
            - greatest(1, tokens / 10) * 60 / (0.9 * tokens) * interval '1 second' - now);
    end if;
    if extract(epoch from wait) > patience then
        return extract(epoch from wait);
    end if;
    -- Counted from the time of the call: one rate may delay what the other would admit at once.
    update provider_rates
    set requests_at = greatest(requests_at, now + wait) + request_step,
        tokens_at = greatest(tokens_at, now + wait) + token_charge
    where provider = of_provider and model = of_model and key = of_key;
    return extract(epoch from wait);
end
$$;
