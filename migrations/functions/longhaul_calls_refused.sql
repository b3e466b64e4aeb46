-- Records answers that ask for fewer calls: 429 and overload. The first such answer to a call begins its wait; another
-- call of the execution begins another. Says of each, in the order given, how many seconds of its patience are left;
-- null if its lease is lost. Locks no execution.
create or replace function longhaul_calls_refused(
    of_providers text[], of_models text[], of_keys text[], refused throttled_call[]
) returns table (place bigint, seconds_left float8)
    language sql volatile
    as $$
        with told as materialized (
            select t.place, (t.attempt).execution as id, (t.attempt).token, (t.attempt).call, t.throttle_id, t.patience,
                of_providers[t.place] as provider, of_models[t.place] as model, of_keys[t.place] as key
            from unnest(refused) with ordinality as t (attempt, throttle_id, patience, place)
        ),
        counted as (
            insert into provider_waits as w (
                execution_id, provider, model, key, reason, priority, since, give_up_at, is_released, call, throttles,
                throttle_id
            )
            select e.id, t.provider, t.model, t.key, 'rate_limit', e.priority, longhaul_now(),
                longhaul_now() + t.patience * interval '1 second', true, t.call, 1, t.throttle_id
            from told t join executions e on e.id = t.id and e.lease_token = t.token
            order by e.id
            on conflict (execution_id) do update
            set throttles = case when w.call is distinct from excluded.call then 1
                    when w.throttle_id is not distinct from excluded.throttle_id then w.throttles
                    else w.throttles + 1 end,
                since = case when w.call <> excluded.call then excluded.since else w.since end,
                give_up_at = case when w.call <> excluded.call then excluded.give_up_at else w.give_up_at end,
                is_released = true, call = excluded.call, throttle_id = excluded.throttle_id
            returning w.execution_id, w.give_up_at
        )
        select t.place, extract(epoch from c.give_up_at - longhaul_now())::float8
        from told t left join counted c on c.execution_id = t.id
        order by t.place
    $$;
