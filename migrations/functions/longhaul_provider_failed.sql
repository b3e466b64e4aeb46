-- Records a failed model call that tells something about its endpoint. Returns 'retry' (the table of failure classes
-- applies), 'wait' (the breaker is open and no retry is spent) or 'lost' with the lease. Lock order: the breaker's row,
-- then executions.
create or replace function longhaul_provider_failed(
    failure failed_call, of_provider text, of_model text, of_key text, first_pause float8, longest_pause float8
) returns table (verdict text, held_until timestamptz, wake_seq int, is_news boolean, probe_failed boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    attempt asking_attempt := failure.attempt;
    b provider_breakers;
    seq int;
    now timestamptz;
    was_probe boolean;
    opens boolean := false;
    failures int;
    failed int;
    of_executions int;
    pause interval;
begin
    -- Repeats if the row was deleted in between.
    loop
        insert into provider_breakers (provider, model, key)
            values (of_provider, of_model, of_key) on conflict do nothing;
        select * into b from provider_breakers x
        where x.provider = of_provider and x.model = of_model and x.key = of_key
        for no key update;
        exit when found;
    end loop;
    select e.wake_seq into seq from executions e join workers k on k.id = e.worker_id
    where e.id = attempt.execution and e.worker_id = attempt.worker and e.lease_token = attempt.token
        and k.dead_at is null;
    if seq is null then
        return query select 'lost', null::timestamptz, 0, false, false;
        return;
    end if;
    now := longhaul_now();
    was_probe := coalesce(
        b.state = 'open' and b.probe_execution = attempt.execution and b.probe_token = attempt.token, false
    );
    failures := b.failed_probes + (was_probe or b.state = 'recovering')::int;
    if failure.is_quota then
        opens := b.state <> 'open' or was_probe;
    elsif b.state = 'open' then
        opens := was_probe;
    elsif b.state = 'recovering' and b.portion <= 64 then
        opens := true;
    else
        insert into provider_failures (execution_id, lease_token, provider, model, key, class, at)
        values (attempt.execution, attempt.token, of_provider, of_model, of_key, failure.class, now)
        on conflict do nothing;
        delete from provider_failures x
        where x.provider = of_provider and x.model = of_model and x.key = of_key and not x.is_owed
            and x.at <= now - interval '10 seconds';
        -- Each row is one failure. An attempt ends with its first, so an execution that retried within the window
        -- has several.
        select count(*), count(distinct x.execution_id) into failed, of_executions
        from provider_failures x
        where x.provider = of_provider and x.model = of_model and x.key = of_key and x.at > now - interval '10 seconds';
        opens := failed >= 5 and of_executions >= 3;
        if not opens then
            return query select 'retry', null::timestamptz, seq, false, false;
            return;
        end if;
        -- The current failure spends no retry, so none is owed.
        delete from provider_failures x where x.execution_id = attempt.execution and x.lease_token = attempt.token;
        update provider_failures x set is_owed = true
        where x.provider = of_provider and x.model = of_model and x.key = of_key;
    end if;
    if opens then
        pause := least(
            first_pause * 2 ^ least(failures + case when failure.is_quota then 3 else 0 end, 20), longest_pause
        ) * interval '1 second';
        if failure.stated is not null and failure.is_quota then
            pause := least(failure.stated, 86400) * interval '1 second';
        elsif failure.stated is not null then
            pause := greatest(pause, least(failure.stated, 86400) * interval '1 second');
        end if;
        update provider_breakers x
        set state = 'open', cause = case when failure.is_quota then 'quota' else 'outage' end,
            failure_code = failure.code,
            since = case when x.state = 'closed' then now else coalesce(x.since, now) end,
            open_until = now + pause, is_stated = failure.stated is not null, failed_probes = failures,
            probe_execution = null, probe_token = null, probe_until = null, portion = 0, released = 0,
            answered = 0, cursor_priority = null, cursor_id = null
        where x.provider = of_provider and x.model = of_model and x.key = of_key
        returning * into b;
    end if;
    perform longhaul_refund_failures(of_provider, of_model, of_key, failure.patience);
    perform longhaul_wait_for_provider(attempt.execution, of_provider, of_model, of_key, 'provider_down',
        failure.patience, null, attempt.call);
    return query select 'wait', greatest(b.open_until, now + interval '1 second'), seq, opens, was_probe;
end
$$;
