-- Releases up to `n` executions, at most 200, that wait for a place at a full endpoint; none while the endpoint takes
-- no calls for longer than an attempt waits in memory. Tenants take turns, in the order of their ids after the one that
-- was last; of a tenant, the queue `interactive` is first. Locks the endpoint's row, the waits, then executions, the
-- last two with `skip locked`.
create or replace function longhaul_wake_for_slot(of_provider text, of_model text, of_key text, n int)
    returns setof uuid
    language plpgsql volatile
    as $$
declare
    -- Most tenants that take turns in one call.
    max_tenants constant int := 200;
    b provider_breakers;
    turn_of_last uuid;
    line uuid[];
    last uuid;
    done uuid[];
    over uuid[];
begin
    insert into provider_breakers (provider, model, key) values (of_provider, of_model, of_key) on conflict do nothing;
    select * into b from provider_breakers x
    where x.provider = of_provider and x.model = of_model and x.key = of_key
    for no key update;
    if b.closed_until > longhaul_now() + interval '2 seconds' then
        return;
    end if;
    turn_of_last := coalesce(b.line_turn, '00000000-0000-0000-0000-000000000000');
    -- Those after the last one (lap 1), then the others (lap 2).
    with recursive waiting (tenant_id, lap, place) as (
        (
            select w.tenant_id, case when w.tenant_id > turn_of_last then 1 else 2 end, 1
            from provider_waits w
            where w.provider = of_provider and w.model = of_model and w.key = of_key
                and w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
                and w.tenant_id is not null
                and (
                    w.tenant_id > turn_of_last
                    or not exists (
                        select from provider_waits x
                        where x.provider = of_provider and x.model = of_model and x.key = of_key
                            and x.reason = 'rate_limit' and x.pass_at is null and not x.is_released
                            and x.tenant_id > turn_of_last
                    )
                )
            order by w.tenant_id limit 1
        )
        union all
        select next.tenant_id, next.lap, waiting.place + 1 from waiting cross join lateral (
            select found.tenant_id, found.lap from (
                (
                    select w.tenant_id, waiting.lap from provider_waits w
                    where w.provider = of_provider and w.model = of_model and w.key = of_key
                        and w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
                        and w.tenant_id > waiting.tenant_id
                        and (waiting.lap = 1 or w.tenant_id <= turn_of_last)
                    order by w.tenant_id limit 1
                )
                union all
                (
                    select w.tenant_id, 2 from provider_waits w
                    where waiting.lap = 1
                        and w.provider = of_provider and w.model = of_model and w.key = of_key
                        and w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
                        and w.tenant_id <= turn_of_last
                    order by w.tenant_id limit 1
                )
            ) found
            order by found.lap limit 1
        ) next
        where waiting.place < max_tenants
    ),
    turns as (
        select head.execution_id, waiting.tenant_id, waiting.place, head.turn
        from waiting cross join lateral (
            select w.execution_id, row_number() over (order by w.is_batch, w.priority desc, w.execution_id) as turn
            from (
                select w.execution_id, w.is_batch, w.priority from provider_waits w
                where w.provider = of_provider and w.model = of_model and w.key = of_key
                    and w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
                    and w.tenant_id = waiting.tenant_id
                order by w.is_batch, w.priority desc, w.execution_id
                limit least(n, 200)
                for update skip locked
            ) w
        ) head
        order by head.turn, waiting.place
        limit least(n, 200)
    )
    select array_agg(t.execution_id order by t.turn, t.place),
        (array_agg(t.tenant_id order by t.turn desc, t.place desc))[1]
    into line, last
    from turns t;
    -- Waits of before this release have no tenant.
    if coalesce(cardinality(line), 0) < least(n, 200) then
        line := coalesce(line, '{}') || array(
            select w.execution_id from provider_waits w
            where w.provider = of_provider and w.model = of_model and w.key = of_key
                and w.reason = 'rate_limit' and w.pass_at is null and not w.is_released and w.tenant_id is null
            order by w.execution_id
            limit least(n, 200) - coalesce(cardinality(line), 0)
            for update skip locked
        );
    end if;
    update provider_breakers x set line_turn = last
    where x.provider = of_provider and x.model = of_model and x.key = of_key and last is not null;
    select array_agg(w.id) filter (where not w.is_over), array_agg(w.id) filter (where w.is_over) into done, over
    from longhaul_wake_all(line, 'rate_limit') w;
    update provider_waits set is_released = true where execution_id = any (done);
    delete from provider_waits where execution_id = any (over);
    return query select * from unnest(done);
end
$$;
