-- Decides whether an attempt may call an endpoint whose breaker is not known to be closed: 'go', 'closed',
-- 'probe', 'wait' until `held_until`, 'give_up', or 'lost' with its lease. An execution that the breaker released
-- may call while it is recovering. Locks the breaker's row.
create or replace function longhaul_ask_provider(
    attempt asking_attempt, of_provider text, of_model text, of_key text, patience float8, is_last boolean
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
    where e.id = attempt.execution and e.worker_id = attempt.worker and e.lease_token = attempt.token
        and k.dead_at is null;
    if seq is null then
        return query select 'lost', null::timestamptz, 0, null::text;
        return;
    end if;
    now := longhaul_now();
    select * into w from provider_waits x where x.execution_id = attempt.execution;
    if b.state is null or b.state = 'closed' then
        return query select case when w.execution_id is null then 'closed' else 'go' end, null::timestamptz, seq,
            null::text;
        return;
    end if;
    if b.state = 'recovering' and w.is_let_go and (w.provider, w.model, w.key) = (of_provider, of_model, of_key) then
        return query select 'go', null::timestamptz, seq, b.cause;
        return;
    end if;
    if b.state = 'open' and b.open_until <= now
        and (b.probe_execution = attempt.execution or not longhaul_probe_lives(b, now)) then
        update provider_breakers x
        set probe_execution = attempt.execution, probe_token = attempt.token, probe_until = now + interval '10 seconds',
            probes = x.probes + 1
        where x.provider = of_provider and x.model = of_model and x.key = of_key;
        return query select 'probe', null::timestamptz, seq, b.cause;
        return;
    end if;
    begun := case when w.execution_id is null or w.call <> attempt.call then now
        else longhaul_waiting_since(w, of_provider, of_model, of_key) end;
    if begun + patience * interval '1 second' <= now
        or (not is_last and b.is_stated and b.open_until > begun + patience * interval '1 second')
    then
        return query select 'give_up', b.open_until, seq, b.cause;
        return;
    end if;
    perform longhaul_wait_for_provider(attempt.execution, of_provider, of_model, of_key, 'provider_down', patience,
        null, attempt.call);
    return query select 'wait', greatest(b.open_until, now + interval '1 second'), seq, b.cause;
end
$$;
