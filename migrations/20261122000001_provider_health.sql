-- The health of model providers, for the whole fleet (docs/adr/0012-provider-health.md): breakers, who waits for them, and limits.

-- One row per endpoint that ever failed: a provider, a model and the fingerprint of a key. No row is a closed breaker.
create table provider_breakers (
    provider text not null,
    model text not null,
    -- Fingerprint of the address and the key; the key itself is nowhere.
    key text not null,
    -- open: nobody asks but one probe at a time, once `open_until` has passed. recovering: a probe was answered, and those that
    -- wait are let go in growing portions.
    state text not null default 'closed' check (state in ('closed', 'open', 'recovering')),
    cause text check (cause in ('outage', 'quota', 'operator')),
    failure_code text,
    since timestamptz,
    open_until timestamptz,
    -- The provider itself said until when.
    is_stated boolean not null default false,
    failed_probes int not null default 0,
    probes bigint not null default 0,
    -- The execution that may probe: until `probe_until`, and as long as it asks under this lease.
    probe_execution uuid,
    probe_token uuid,
    probe_until timestamptz,
    portion int not null default 0,
    answered int not null default 0,
    portion_at timestamptz,
    -- Calls at a time since the endpoint said that there were too many; null: not limited.
    concurrency int check (concurrency >= 1),
    concurrency_most int,
    concurrency_at timestamptz,
    primary key (provider, model, key)
) with (fillfactor = 50);

-- Failures of the last seconds, and those that are owed back because a breaker opened over them.
create table provider_failures (
    execution_id uuid not null,
    lease_token uuid not null,
    provider text not null,
    model text not null,
    key text not null,
    class text not null,
    at timestamptz not null,
    is_owed boolean not null default false,
    primary key (execution_id, lease_token)
);
create index provider_failures_of on provider_failures (provider, model, key, at);

-- Who waits for an endpoint. The row lives until its call was answered, so that the wait is bounded however often it is resumed.
create table provider_waits (
    execution_id uuid primary key,
    provider text not null,
    model text not null,
    key text not null,
    reason text not null check (reason in ('provider_down', 'rate_limit')),
    priority smallint not null,
    since timestamptz not null,
    give_up_at timestamptz not null,
    -- When its reserved place in a rate comes.
    pass_at timestamptz,
    is_released boolean not null default false,
    -- How often it was the probe. Another is asked first: one that always fails must not keep the breaker open.
    probed int not null default 0
);
create index provider_waits_line on provider_waits (provider, model, key, reason, priority desc, execution_id) where not is_released;

-- Rates where Redis is away: when the next request, and the next token, would be on time.
create table provider_rates (
    provider text not null,
    model text not null,
    key text not null,
    requests_at timestamptz not null,
    tokens_at timestamptz not null,
    primary key (provider, model, key)
) with (fillfactor = 50);

-- Lets the next `n` that wait go, in fair order, and closes the breaker when nobody is left. Its row is locked by the caller,
-- always before any execution's.
create function longhaul_release_waiters(of_provider text, of_model text, of_key text, n int) returns setof uuid
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
            update provider_waits set is_released = true where execution_id = w.execution_id;
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

-- Whether the one that may probe still can: it was chosen a moment ago, or asks now under its lease.
create function longhaul_probe_lives(b provider_breakers, now timestamptz) returns boolean
    language sql stable
    as $$
        select b.probe_execution is not null and (
            b.probe_until > now
            or exists (
                select from executions e
                where e.id = b.probe_execution and e.worker_id is not null and e.lease_token = b.probe_token
            )
        )
    $$;

-- Since when an execution waits: not since a wait for an earlier outage, of which a killed attempt left the row.
create function longhaul_waiting_since(w provider_waits, of_provider text, of_model text, of_key text) returns timestamptz
    language sql volatile
    as $$
        select case when w.since < b.since then longhaul_now() else w.since end
        from (select) as one
        left join provider_breakers b
            on b.provider = of_provider and b.model = of_model and b.key = of_key and b.state <> 'closed'
    $$;

-- Puts an execution in line, or moves it there; how long it has waited already counts.
create function longhaul_wait_for_provider(
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
            pass_at = excluded.pass_at, is_released = false
        returning *
    $$;

-- May this attempt ask the endpoint now? Asked only where a breaker is known to be not closed.
create function longhaul_ask_provider(
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
    if b.state = 'recovering' and w.is_released and (w.provider, w.model, w.key) = (of_provider, of_model, of_key) then
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

-- Gives back the retries that were spent over an outage: what a breaker opened over, and whose attempt has ended with a retry.
-- One that backs off waits for the provider instead. Its breaker's row is locked by the caller.
create function longhaul_refund_failures(of_provider text, of_model text, of_key text, patience float8) returns int
    language plpgsql volatile
    as $$
declare
    f record;
    e executions;
    b provider_breakers;
    w provider_waits;
    given int := 0;
begin
    select * into b from provider_breakers where provider = of_provider and model = of_model and key = of_key;
    for f in
        select o.execution_id, o.lease_token, o.class, a.outcome, o.at
        from provider_failures o
        left join attempts a on a.execution_id = o.execution_id and a.lease_token = o.lease_token
        where o.provider = of_provider and o.model = of_model and o.key = of_key and o.is_owed
        order by o.execution_id
        limit 500
    loop
        -- Its attempt is about to end, and is found ended the next time.
        continue when f.outcome is null and f.at > longhaul_now() - interval '1 hour';
        if f.outcome = 'retrying' then
            select * into e from executions where id = f.execution_id and finished_at is null for no key update;
            if found then
                update executions
                set transient_retries = greatest(0, transient_retries - (f.class = 'transient')::int),
                    llm_error_retries = greatest(0, llm_error_retries - (f.class = 'llm_error')::int)
                where id = e.id;
                given := given + 1;
                if e.wait_reason = 'retry_backoff' and b.state <> 'closed' then
                    w := longhaul_wait_for_provider(e.id, of_provider, of_model, of_key, 'provider_down', patience, null);
                    update parked set wait_reason = 'provider_down', wait_until = least(w.give_up_at, e.deadline_at)
                    where execution_id = e.id;
                    insert into events (execution_id, seq, at, kind, data)
                    values (e.id, e.event_seq + 1, longhaul_now(), 'provider_down', jsonb_strip_nulls(jsonb_build_object(
                        'provider', of_provider, 'model', of_model, 'cause', b.cause, 'until', b.open_until, 'refunded', f.class
                    )));
                    update executions
                    set wait_reason = 'provider_down', wait_until = greatest(b.open_until, longhaul_now()),
                        wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
                    where id = e.id;
                end if;
            end if;
        end if;
        delete from provider_failures where execution_id = f.execution_id and lease_token = f.lease_token;
    end loop;
    return given;
end
$$;

-- A model call failed in a way that tells of its endpoint. `stated` is the wait it asked for. The answer is 'retry', and the table of
-- classes applies, or 'wait': the breaker is open, and nothing is spent.
create function longhaul_provider_failed(
    worker uuid, execution uuid, token uuid, of_provider text, of_model text, of_key text, of_class text, of_code text,
    is_quota boolean, stated float8, first_pause float8, longest_pause float8, patience float8
) returns table (verdict text, held_until timestamptz, wake_seq int, is_news boolean, probe_failed boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
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
    -- Again when it was forgotten in between.
    loop
        insert into provider_breakers (provider, model, key) values (of_provider, of_model, of_key) on conflict do nothing;
        select * into b from provider_breakers x
        where x.provider = of_provider and x.model = of_model and x.key = of_key
        for no key update;
        exit when found;
    end loop;
    select e.wake_seq into seq from executions e join workers k on k.id = e.worker_id
    where e.id = execution and e.worker_id = worker and e.lease_token = token
        and k.dead_at is null and k.expires_at > clock_timestamp();
    if seq is null then
        return query select 'lost', null::timestamptz, 0, false, false;
        return;
    end if;
    now := longhaul_now();
    was_probe := coalesce(b.state = 'open' and b.probe_execution = execution and b.probe_token = token, false);
    failures := b.failed_probes + (was_probe or b.state = 'recovering')::int;
    if is_quota then
        opens := b.state <> 'open' or was_probe;
    elsif b.state = 'open' then
        opens := was_probe;
    elsif b.state = 'recovering' and b.portion <= 64 then
        opens := true;
    else
        insert into provider_failures (execution_id, lease_token, provider, model, key, class, at)
        values (execution, token, of_provider, of_model, of_key, of_class, now)
        on conflict do nothing;
        delete from provider_failures x
        where x.provider = of_provider and x.model = of_model and x.key = of_key and not x.is_owed
            and x.at <= now - interval '10 seconds';
        -- Each row is one failure; an attempt ends with its first, so an execution that retried within the window has several.
        select count(*), count(distinct x.execution_id) into failed, of_executions
        from provider_failures x
        where x.provider = of_provider and x.model = of_model and x.key = of_key and x.at > now - interval '10 seconds';
        opens := failed >= 5 and of_executions >= 3;
        if not opens then
            return query select 'retry', null::timestamptz, seq, false, false;
            return;
        end if;
        -- The one that fails now spends nothing, so nothing is owed to it.
        delete from provider_failures x where x.execution_id = execution and x.lease_token = token;
        update provider_failures x set is_owed = true
        where x.provider = of_provider and x.model = of_model and x.key = of_key;
    end if;
    if opens then
        pause := least(first_pause * 2 ^ least(failures + case when is_quota then 3 else 0 end, 20), longest_pause)
            * interval '1 second';
        if stated is not null and is_quota then
            pause := least(stated, 86400) * interval '1 second';
        elsif stated is not null then
            pause := greatest(pause, least(stated, 86400) * interval '1 second');
        end if;
        update provider_breakers x
        set state = 'open', cause = case when is_quota then 'quota' else 'outage' end, failure_code = of_code,
            since = case when x.state = 'closed' then now else coalesce(x.since, now) end,
            open_until = now + pause, is_stated = stated is not null, failed_probes = failures,
            probe_execution = null, probe_token = null, probe_until = null, portion = 0, answered = 0
        where x.provider = of_provider and x.model = of_model and x.key = of_key
        returning * into b;
    end if;
    perform longhaul_refund_failures(of_provider, of_model, of_key, patience);
    perform longhaul_wait_for_provider(execution, of_provider, of_model, of_key, 'provider_down', patience, null);
    return query select 'wait', greatest(b.open_until, now + interval '1 second'), seq, opens, was_probe;
end
$$;

-- The endpoint answered one that had to ask whether it may: whatever it said, it is there.
create function longhaul_provider_answered(
    execution uuid, token uuid, of_provider text, of_model text, of_key text
) returns setof uuid
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
begin
    select * into b from provider_breakers
    where provider = of_provider and model = of_model and key = of_key
    for no key update;
    delete from provider_waits where execution_id = execution;
    if b.state = 'open' and b.probe_execution = execution and b.probe_token = token then
        update provider_breakers
        set state = 'recovering', portion = 2, answered = 0, portion_at = clock_timestamp(),
            probe_execution = null, probe_token = null, probe_until = null
        where provider = of_provider and model = of_model and key = of_key;
        return query select * from longhaul_release_waiters(of_provider, of_model, of_key, 2);
    elsif b.state = 'recovering' and (b.answered + 1) * 2 >= b.portion then
        update provider_breakers set portion = b.portion * 2, answered = 0, portion_at = clock_timestamp()
        where provider = of_provider and model = of_model and key = of_key;
        return query select * from longhaul_release_waiters(of_provider, of_model, of_key, b.portion * 2);
    elsif b.state = 'recovering' then
        update provider_breakers set answered = b.answered + 1
        where provider = of_provider and model = of_model and key = of_key;
    end if;
end
$$;

-- What time brings: the next probe, the rest of a portion whose calls never answered, refunds of attempts that ended since, and what
-- lost its breaker. Returns the executions it woke.
create function longhaul_tend_providers(patience float8) returns setof uuid
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
        elsif b.state = 'recovering' and b.portion_at < clock_timestamp() - interval '15 seconds' then
            update provider_breakers set portion = b.portion * 2, answered = 0, portion_at = clock_timestamp()
            where provider = b.provider and model = b.model and key = b.key;
            return query select * from longhaul_release_waiters(b.provider, b.model, b.key, b.portion * 2);
        elsif b.state = 'recovering' then
            -- Closes when nobody is left.
            perform longhaul_release_waiters(b.provider, b.model, b.key, 0);
        end if;
    end loop;
end
$$;

-- `is_over` of the reason `provider_down` (core-rules 3): what waits for a breaker that is closed, or stands in no line. The wakes make
-- this find nothing; it is the net below them. Also forgets the waits of executions that have ended.
create function longhaul_wake_unblocked(most int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    id uuid;
begin
    for id in
        select p.execution_id
        from parked p
        left join provider_waits w on w.execution_id = p.execution_id
        left join provider_breakers b on (b.provider, b.model, b.key) = (w.provider, w.model, w.key)
        where p.wait_reason = 'provider_down'
            and (w.execution_id is null or w.is_released or b.state is null or b.state = 'closed')
        order by p.execution_id
        limit most
    loop
        if longhaul_wake(id, 'provider_down') then
            return next id;
        end if;
    end loop;
    delete from provider_waits w using executions e
    where e.id = w.execution_id and e.finished_at is not null;
    delete from provider_waits w where not exists (select from executions e where e.id = w.execution_id);
    delete from provider_failures f where f.at < longhaul_now() - interval '2 hours';
    -- Agents name models freely: a breaker that is closed is kept for a week, for people.
    delete from provider_breakers b
    where b.state = 'closed' and b.concurrency is null and coalesce(b.since, '-infinity') < longhaul_now() - interval '7 days'
        and not exists (select from provider_failures f where (f.provider, f.model, f.key) = (b.provider, b.model, b.key));
    delete from provider_rates r where greatest(r.requests_at, r.tokens_at) < longhaul_now() - interval '1 day';
end
$$;

-- The endpoint said that there were too many calls at a time: half of those there were, at most once a second.
create function longhaul_provider_throttled(of_provider text, of_model text, of_key text, in_flight int, most int) returns int
    language plpgsql volatile
    as $$
declare
    b provider_breakers;
    now timestamptz := clock_timestamp();
begin
    insert into provider_breakers (provider, model, key) values (of_provider, of_model, of_key) on conflict do nothing;
    select * into b from provider_breakers
    where provider = of_provider and model = of_model and key = of_key
    for no key update;
    if b.concurrency is not null and b.concurrency_at > now - interval '1 second' then
        return b.concurrency;
    end if;
    update provider_breakers
    set concurrency = greatest(1, coalesce(least(concurrency, in_flight), in_flight) / 2),
        concurrency_most = coalesce(most, greatest(concurrency_most, in_flight, 2)), concurrency_at = now
    where provider = of_provider and model = of_model and key = of_key
    returning * into b;
    return b.concurrency;
end
$$;

-- A call to an endpoint with as many calls as may be has ended: the next `n` in line are let go.
create function longhaul_wake_for_slot(of_provider text, of_model text, of_key text, n int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    w provider_waits;
begin
    for w in
        select * from provider_waits
        where provider = of_provider and model = of_model and key = of_key and reason = 'rate_limit' and pass_at is null
            and not is_released
        order by priority desc, execution_id
        limit n
        for update skip locked
    loop
        if longhaul_wake(w.execution_id, 'rate_limit') then
            update provider_waits set is_released = true where execution_id = w.execution_id;
            return next w.execution_id;
        else
            delete from provider_waits where execution_id = w.execution_id;
        end if;
    end loop;
end
$$;

-- An operator says that the endpoint is well: one goes ahead, then two, four, … . What waits for a call to end goes too; rates
-- go on, being what the operator configured.
create function longhaul_reset_provider(of_provider text, of_model text, of_key text) returns setof uuid
    language plpgsql volatile
    as $$
begin
    perform from provider_breakers
    where provider = of_provider and model = of_model and key = of_key
    for no key update;
    update provider_breakers
    set state = 'recovering', cause = 'operator', open_until = null, is_stated = false, failed_probes = 0, portion = 1, answered = 0,
        portion_at = clock_timestamp(), probe_execution = null, probe_token = null, probe_until = null
    where provider = of_provider and model = of_model and key = of_key and state <> 'closed';
    update provider_breakers set concurrency = null, concurrency_at = null
    where provider = of_provider and model = of_model and key = of_key;
    return query select * from longhaul_release_waiters(of_provider, of_model, of_key, 1);
    return query select * from longhaul_wake_for_slot(of_provider, of_model, of_key, 1000);
end
$$;

-- A place in the rates of an endpoint, where Redis is away: seconds until it comes. Not taken when that is longer than `patience`.
-- A rate of n a minute is n / 10 at once and the rest spread, so that no minute sees more than n.
create function longhaul_take_rate(
    of_provider text, of_model text, of_key text, execution uuid, requests float8, tokens float8, amount float8, patience float8
) returns float8
    language plpgsql volatile
    as $$
declare
    r provider_rates;
    now timestamptz := longhaul_now();
    pass timestamptz;
    wait interval := interval '0';
    request_step interval := coalesce(60 / (0.9 * requests), 0) * interval '1 second';
    token_step interval := coalesce(60 * least(amount, greatest(1, tokens / 10)) / (0.9 * tokens), 0) * interval '1 second';
begin
    insert into provider_rates (provider, model, key, requests_at, tokens_at)
    values (of_provider, of_model, of_key, now, now)
    on conflict do nothing;
    select * into r from provider_rates where provider = of_provider and model = of_model and key = of_key for no key update;
    -- A place that was taken before, and has come.
    delete from provider_waits
    where execution_id = execution and provider = of_provider and model = of_model and key = of_key and reason = 'rate_limit'
        and pass_at <= now + interval '50 milliseconds';
    if found then
        return 0;
    end if;
    select pass_at into pass from provider_waits
    where execution_id = execution and provider = of_provider and model = of_model and key = of_key and reason = 'rate_limit'
        and pass_at is not null;
    if found then
        return extract(epoch from pass - now);
    end if;
    if requests is not null then
        wait := greatest(wait, r.requests_at + request_step - greatest(1, floor(requests / 10)) * request_step - now);
    end if;
    if tokens is not null then
        wait := greatest(wait, r.tokens_at + token_step - greatest(1, tokens / 10) * 60 / (0.9 * tokens) * interval '1 second' - now);
    end if;
    if extract(epoch from wait) > patience then
        return extract(epoch from wait);
    end if;
    update provider_rates
    set requests_at = greatest(requests_at, now) + request_step, tokens_at = greatest(tokens_at, now) + token_step
    where provider = of_provider and model = of_model and key = of_key;
    return extract(epoch from wait);
end
$$;
