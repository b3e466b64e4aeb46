-- Moves breakers on as time passes: the next probe, the next portion once nobody of the last one is left to answer,
-- and refunds of attempts that ended since. Returns the executions it woke.
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
