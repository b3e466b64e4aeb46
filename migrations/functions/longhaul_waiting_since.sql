-- Start of the current wait. Ignores a stale row that a killed attempt left from an earlier outage.
create or replace function longhaul_waiting_since(w provider_waits, of_provider text, of_model text, of_key text)
    returns timestamptz
    language sql volatile
    as $$
        select case when w.since < b.since then longhaul_now() else w.since end
        from (select) as one
        left join provider_breakers b
            on b.provider = of_provider and b.model = of_model and b.key = of_key and b.state <> 'closed'
    $$;
