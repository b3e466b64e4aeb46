-- Workers with different addresses or keys for one provider have different breakers (docs/adr/0012-provider-health.md), and any of
-- them may claim whom one breaker let go. Who then stands in another line is no probe of the first, and no part of its portion.

-- Whether the one that may probe still can: it was chosen a moment ago and stands in this line, or asks now under its lease.
create or replace function longhaul_probe_lives(b provider_breakers, now timestamptz) returns boolean
    language sql stable
    as $$
        select b.probe_execution is not null and (
            b.probe_until > now and (
                b.probe_token is not null
                or exists (
                    select from provider_waits w
                    where w.execution_id = b.probe_execution and (w.provider, w.model, w.key) = (b.provider, b.model, b.key)
                )
            )
            or exists (
                select from executions e
                where e.id = b.probe_execution and e.worker_id is not null and e.lease_token = b.probe_token
            )
        )
    $$;

-- What time brings: the next probe, the rest of a portion of which nobody will answer, refunds of attempts that ended since, and what
-- lost its breaker. Returns the executions it woke.
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
                    update provider_waits set is_released = true, probed = probed + 1 where execution_id = w.execution_id;
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
                where provider = b.provider and model = b.model and key = b.key and reason = 'provider_down' and is_released
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
