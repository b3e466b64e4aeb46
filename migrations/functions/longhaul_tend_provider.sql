-- Advances one breaker: chooses the next probe, releases the rest of a portion, starts the portion after one
-- whose calls never answered, and refunds failures of attempts that ended since. Wakes at most `most` executions
-- and returns them. Does nothing while another process tends the breaker. Lock order: the advisory lock, the
-- breaker's row, executions.
create or replace function longhaul_tend_provider(of_provider text, of_model text, of_key text, patience float8,
    most int)
    returns setof uuid
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
    chosen uuid;
    gone boolean;
    now timestamptz := longhaul_now();
begin
    -- One process at a time tends the breaker. It waits for the row below in turn with the calls that ask.
    if not pg_try_advisory_xact_lock(hashtextextended(concat_ws(chr(1), 'longhaul.breaker', of_provider, of_model,
        of_key), 0)) then
        return;
    end if;
    select * into b from provider_breakers
    where provider = of_provider and model = of_model and key = of_key and state <> 'closed'
    for no key update;
    if not found then
        return;
    end if;
    perform longhaul_refund_failures(of_provider, of_model, of_key, patience);
    if b.state = 'open' and b.open_until <= now and not longhaul_probe_lives(b, now) then
        for chosen in
            select execution_id from provider_waits
            where provider = of_provider and model = of_model and key = of_key and reason = 'provider_down'
                and not is_released
            order by probed, priority desc, execution_id
            limit 10
        loop
            select w.is_over into gone from longhaul_wake_all(array[chosen], 'provider_down') w;
            if gone then
                delete from provider_waits where execution_id = chosen;
            elsif found then
                update provider_waits set is_released = true, is_let_go = true, probed = probed + 1
                    where execution_id = chosen;
                update provider_breakers
                set probe_execution = chosen, probe_token = null, probe_until = now + interval '30 seconds'
                where provider = of_provider and model = of_model and key = of_key;
                return next chosen;
                exit;
            end if;
        end loop;
    elsif b.state = 'recovering' then
        if b.released >= b.portion and (
            b.portion_at < clock_timestamp() - interval '15 seconds'
            or not exists (
                select from provider_waits
                where provider = of_provider and model = of_model and key = of_key and is_let_go
            )
        ) then
            perform longhaul_next_portion(of_provider, of_model, of_key);
        end if;
        -- Also closes the breaker when no execution waits.
        return query select * from longhaul_release_waiters(of_provider, of_model, of_key, most);
    end if;
end
$$;
