-- An endpoint that recovers may have a rate too, so that who was let go waits a second time, for that. It is let go all the same: it does not
-- go back to the line of the breaker when its turn has come, and it has still to answer. Were its portion taken for gone, the next would
-- be twice as large every second, and all would be let go before anybody had asked.
alter table provider_waits add column is_let_go boolean not null default false;
comment on column provider_waits.is_let_go is 'The breaker of its endpoint let it go, and it has not been answered.';
update provider_waits set is_let_go = true where reason = 'provider_down' and is_released;

-- As before, and says who is let go.
create or replace function longhaul_release_waiters(of_provider text, of_model text, of_key text, n int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    w provider_waits;
    released int := 0;
begin
    while released < n loop
        select * into w from provider_waits
        where provider = of_provider and model = of_model and key = of_key and reason = 'provider_down' and not is_released
        order by priority desc, execution_id
        limit 1;
        exit when not found;
        if longhaul_wake(w.execution_id, 'provider_down') then
            update provider_waits set is_released = true, is_let_go = true where execution_id = w.execution_id;
            released := released + 1;
            return next w.execution_id;
        else
            delete from provider_waits where execution_id = w.execution_id;
        end if;
    end loop;
    if not exists (
        select from provider_waits
        where provider = of_provider and model = of_model and key = of_key and reason = 'provider_down' and not is_released
    ) then
        update provider_breakers
        set state = 'closed', open_until = null, is_stated = false, failed_probes = 0, probe_execution = null, probe_token = null,
            probe_until = null, portion = 0, answered = 0
        where provider = of_provider and model = of_model and key = of_key and state = 'recovering';
    end if;
end
$$;

-- Who was let go by a breaker stays so while it waits for the rate of the same endpoint.
create or replace function longhaul_wait_for_provider(
    execution uuid, of_provider text, of_model text, of_key text, why text, patience float8, pass timestamptz
) returns provider_waits
    language sql volatile
    as $$
        insert into provider_waits (execution_id, provider, model, key, reason, priority, since, give_up_at, pass_at)
        select e.id, of_provider, of_model, of_key, why, e.priority, now.now, now.now + patience * interval '1 second', pass
        from executions e, (select longhaul_now() as now) as now
        where e.id = execution
        on conflict (execution_id) do update
        set provider = excluded.provider, model = excluded.model, key = excluded.key, reason = excluded.reason,
            since = longhaul_waiting_since(provider_waits, of_provider, of_model, of_key),
            give_up_at = longhaul_waiting_since(provider_waits, of_provider, of_model, of_key) + patience * interval '1 second',
            pass_at = excluded.pass_at, is_released = false,
            is_let_go = provider_waits.is_let_go and excluded.reason = 'rate_limit'
                and (provider_waits.provider, provider_waits.model, provider_waits.key) = (of_provider, of_model, of_key)
        returning *
    $$;

-- As before, of those that are let go.
create or replace function longhaul_ask_provider(
    worker uuid, execution uuid, token uuid, of_provider text, of_model text, of_key text, patience float8, is_last boolean
) returns table (verdict text, held_until timestamptz, wake_seq int, cause text)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    b provider_breakers;
    w provider_waits;
    seq int;
    now timestamptz;
    begun timestamptz;
begin
    select * into b from provider_breakers x
    where x.provider = of_provider and x.model = of_model and x.key = of_key
    for no key update;
    select e.wake_seq into seq from executions e join workers k on k.id = e.worker_id
    where e.id = execution and e.worker_id = worker and e.lease_token = token
        and k.dead_at is null and k.expires_at > clock_timestamp();
    if seq is null then
        return query select 'lost', null::timestamptz, 0, null::text;
        return;
    end if;
    now := longhaul_now();
    select * into w from provider_waits x where x.execution_id = execution;
    if b.state is null or b.state = 'closed' then
        return query select case when w.execution_id is null then 'closed' else 'go' end, null::timestamptz, seq, null::text;
        return;
    end if;
    if b.state = 'recovering' and w.is_let_go and (w.provider, w.model, w.key) = (of_provider, of_model, of_key) then
        return query select 'go', null::timestamptz, seq, b.cause;
        return;
    end if;
    if b.state = 'open' and b.open_until <= now and (b.probe_execution = execution or not longhaul_probe_lives(b, now)) then
        update provider_breakers x
        set probe_execution = execution, probe_token = token, probe_until = now + interval '10 seconds', probes = x.probes + 1
        where x.provider = of_provider and x.model = of_model and x.key = of_key;
        return query select 'probe', null::timestamptz, seq, b.cause;
        return;
    end if;
    begun := case when w.execution_id is null then now else longhaul_waiting_since(w, of_provider, of_model, of_key) end;
    if begun + patience * interval '1 second' <= now
        or (not is_last and b.is_stated and b.open_until > begun + patience * interval '1 second')
    then
        return query select 'give_up', b.open_until, seq, b.cause;
        return;
    end if;
    perform longhaul_wait_for_provider(execution, of_provider, of_model, of_key, 'provider_down', patience, null);
    return query select 'wait', greatest(b.open_until, now + interval '1 second'), seq, b.cause;
end
$$;

-- As before: the next portion goes when of the last one nobody is left to answer.
create or replace function longhaul_tend_providers(patience float8) returns setof uuid
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
    w provider_waits;
    now timestamptz := longhaul_now();
begin
    for b in
        select * from provider_breakers where state <> 'closed' order by provider, model, key for no key update skip locked
    loop
        perform longhaul_refund_failures(b.provider, b.model, b.key, patience);
        if b.state = 'open' and b.open_until <= now and not longhaul_probe_lives(b, now) then
            loop
                select * into w from provider_waits
                where provider = b.provider and model = b.model and key = b.key and reason = 'provider_down' and not is_released
                order by probed, priority desc, execution_id
                limit 1;
                exit when not found;
                if longhaul_wake(w.execution_id, 'provider_down') then
                    update provider_waits set is_released = true, is_let_go = true, probed = probed + 1 where execution_id = w.execution_id;
                    update provider_breakers
                    set probe_execution = w.execution_id, probe_token = null, probe_until = now + interval '30 seconds'
                    where provider = b.provider and model = b.model and key = b.key;
                    return next w.execution_id;
                    exit;
                end if;
                delete from provider_waits where execution_id = w.execution_id;
            end loop;
        elsif b.state = 'recovering' and (
            b.portion_at < clock_timestamp() - interval '15 seconds'
            or not exists (
                select from provider_waits
                where provider = b.provider and model = b.model and key = b.key and is_let_go
            )
        ) then
            update provider_breakers set portion = b.portion * 2, answered = 0, portion_at = clock_timestamp()
            where provider = b.provider and model = b.model and key = b.key;
            -- Closes when nobody is left.
            return query select * from longhaul_release_waiters(b.provider, b.model, b.key, b.portion * 2);
        elsif b.state = 'recovering' then
            perform longhaul_release_waiters(b.provider, b.model, b.key, 0);
        end if;
    end loop;
end
$$;
