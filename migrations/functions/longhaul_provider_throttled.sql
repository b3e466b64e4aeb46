-- Records answers that ask for fewer calls: 429 and overload. Halves the limit on concurrent calls, at most once a
-- second, and closes the endpoint for `shut_for` seconds; without one, for a second, doubled with each such answer in a
-- row to one call, up to thirty. Counts the answers in a row to each call, each once; a call whose lease is lost is not
-- counted. Says of each call if its patience is over by then. Locks the breaker's row, and no execution's.
drop function if exists longhaul_provider_throttled(text, text, text, int, int, float8, throttled_call[]);
create or replace function longhaul_provider_throttled(
    of_provider text, of_model text, of_key text, in_flight int, most int, shut_for float8,
    throttled throttled_call[]
) returns table (place bigint, streak int, calls_at_once int, shut_until timestamptz, is_over boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    b provider_breakers;
    now timestamptz := longhaul_now();
    longest int;
    counts jsonb;
    opens_at timestamptz;
begin
    insert into provider_breakers (provider, model, key) values (of_provider, of_model, of_key) on conflict do nothing;
    select * into b from provider_breakers x
    where x.provider = of_provider and x.model = of_model and x.key = of_key
    for no key update;
    if b.concurrency is null or b.concurrency_at <= clock_timestamp() - interval '1 second' then
        b.concurrency_most := coalesce(most, greatest(b.concurrency_most, in_flight, 2));
        b.concurrency := greatest(1, coalesce(least(b.concurrency, in_flight), in_flight) / 2);
        b.concurrency_at := clock_timestamp();
    end if;
    with told as materialized (
        select (t.attempt).execution as id, (t.attempt).token, (t.attempt).call, t.throttle_id, t.patience
        from unnest(throttled) as t
    ),
    counted as (
        insert into provider_waits as w (
            execution_id, provider, model, key, reason, priority, since, give_up_at, is_released, call, throttles,
            throttle_id
        )
        select e.id, of_provider, of_model, of_key, 'rate_limit', e.priority, now,
            now + t.patience * interval '1 second', true,
            t.call, 1, t.throttle_id
        from told t join executions e on e.id = t.id and e.lease_token = t.token
        order by e.id
        on conflict (execution_id) do update
        set throttles = case when w.call is distinct from excluded.call then 1
                when w.throttle_id is not distinct from excluded.throttle_id then w.throttles
                else w.throttles + 1 end,
            since = case when w.call <> excluded.call then excluded.since else w.since end,
            give_up_at = case when w.call <> excluded.call then excluded.give_up_at else w.give_up_at end,
            is_released = true, call = excluded.call, throttle_id = excluded.throttle_id
        returning w.execution_id, w.throttles, w.give_up_at
    )
    select max(c.throttles), jsonb_object_agg(c.execution_id, jsonb_build_array(c.throttles, c.give_up_at))
    into longest, counts
    from counted c;
    opens_at := now + coalesce(shut_for, least(30, power(2, least(coalesce(longest, 1), 10) - 1))) * interval '1 second';
    b.closed_until := greatest(b.closed_until, opens_at);
    update provider_breakers x
    set concurrency = b.concurrency, concurrency_most = b.concurrency_most, concurrency_at = b.concurrency_at,
        closed_until = b.closed_until
    where x.provider = of_provider and x.model = of_model and x.key = of_key;
    return query
    select t.place, (c.counted ->> 0)::int, b.concurrency, b.closed_until,
        coalesce((c.counted ->> 1)::timestamptz <= opens_at, false)
    from unnest(throttled) with ordinality as t (attempt, throttle_id, patience, place)
    cross join lateral (select counts -> ((t.attempt).execution)::text as counted) c
    order by t.place;
end
$$;
