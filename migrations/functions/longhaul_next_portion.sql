-- Starts the next portion of an endpoint's waiting executions, twice as large. The caller has locked the
-- breaker's row.
create or replace function longhaul_next_portion(of_provider text, of_model text, of_key text) returns void
    language sql volatile
    as $$
        update provider_breakers
        set portion = least(portion * 2, 1000000), released = 0, answered = 0, portion_at = clock_timestamp()
        where provider = of_provider and model = of_model and key = of_key
    $$;
