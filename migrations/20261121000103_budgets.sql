-- Budgets: what a tree of executions may spend, and what its model calls have reserved of it (core-rules 13). Money is in
-- billionths of a US dollar, everywhere and without fractions.

alter table executions
    -- Whether its tree has a budget. Immutable.
    add column has_budget boolean not null default false,
    -- What its recorded model calls cost, as far as their price is known.
    add column cost bigint not null default 0,
    -- Model calls whose cost is not known: no price is configured, or the provider did not count.
    add column uncosted_turns int not null default 0;

alter table steps add column cost bigint;

create table budgets (
    root_id uuid primary key,
    tenant_id uuid not null references tenants,
    -- Null: not limited.
    max_cost bigint check (max_cost >= 0),
    max_tokens bigint check (max_tokens >= 0),
    max_calls bigint check (max_calls >= 0),
    on_exhausted text not null check (on_exhausted in ('park', 'fail')),
    -- What settled reservations came to, and what the others hold. A settled reservation counts as reserved until it is folded.
    spent_cost bigint not null default 0,
    spent_tokens bigint not null default 0,
    spent_calls bigint not null default 0,
    reserved_cost bigint not null default 0,
    reserved_tokens bigint not null default 0,
    reserved_calls bigint not null default 0,
    -- Calls among the spent ones whose cost is not known, and calls charged at their estimate because nobody can say what became
    -- of them.
    uncosted_calls bigint not null default 0,
    estimated_calls bigint not null default 0,
    constraint nothing_is_reserved_below_zero check (reserved_cost >= 0 and reserved_tokens >= 0 and reserved_calls >= 0)
) with (fillfactor = 50);

-- One model call of one step, before and after it was made. Asking again for the same step finds the same row.
create table reservations (
    execution_id uuid not null,
    step_key bytea not null check (length(step_key) = 32),
    root_id uuid not null,
    -- waiting: it did not fit. open: it is reserved. settled: it is charged, and deleted when the budget has taken note.
    state text not null check (state in ('waiting', 'open', 'settled')),
    asked_at timestamptz not null,
    -- The lease that may have made the call; null while nobody has taken what was granted.
    lease_token uuid,
    -- The most the call is believed to take; cost null where the price is not known.
    cost bigint,
    tokens bigint not null,
    -- What it took.
    charged_cost bigint,
    charged_tokens bigint not null default 0,
    charged_calls int not null default 0,
    is_estimate boolean not null default false,
    primary key (execution_id, step_key)
);
create index reservations_waiting on reservations (root_id, asked_at) where state = 'waiting';
create index reservations_settled on reservations (root_id) where state = 'settled';

-- Wakes an execution that may wait for `reason` (core-rules 3): adds 1 to its counter, and makes it runnable if it is parked for
-- that. Waits for its row, so a park that is under way is seen. False when it is over.
create function longhaul_wake(execution uuid, reason text) returns boolean
    language plpgsql volatile
    as $$
declare
    e executions;
    is_woken boolean;
begin
    select * into e from executions where id = execution and finished_at is null for no key update;
    if not found then
        return false;
    end if;
    is_woken := coalesce(e.wait_reason = reason, false);
    if is_woken then
        perform longhaul_unpark(e.id);
        insert into events (execution_id, seq, at, kind, data)
        values (e.id, e.event_seq + 1, longhaul_now(), 'woken', jsonb_build_object('waited_for', reason));
    end if;
    update executions
    set wake_seq = e.wake_seq + 1, event_seq = e.event_seq + is_woken::int,
        wait_reason = case when is_woken then 'worker' else e.wait_reason end,
        wait_until = case when not is_woken then e.wait_until end
    where id = e.id;
    return true;
end
$$;

-- Takes note of what was settled, and grants what is free to those that wait, in the order they asked, at most `portion` of them.
-- Returns the executions it woke. The budget's row is locked by the caller, always before any execution's, and an execution's
-- before its reservations: nobody waits the other way round. A function of single statements, because each must see what was
-- committed before the lock was had, and the snapshot of one large statement is older (core-rules 12).
create function longhaul_fold_budget(root uuid, portion int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    b budgets;
    w reservations;
    granted int := 0;
begin
    with gone as (
        delete from reservations where root_id = root and state = 'settled' returning *
    ),
    total as (
        select count(*) as n, coalesce(sum(cost), 0) as cost, coalesce(sum(tokens), 0) as tokens,
            coalesce(sum(charged_cost), 0) as charged_cost, coalesce(sum(charged_tokens), 0) as charged_tokens,
            coalesce(sum(charged_calls), 0) as charged_calls,
            count(*) filter (where charged_calls > 0 and charged_cost is null) as uncosted,
            count(*) filter (where is_estimate) as estimated
        from gone
    )
    update budgets
    set reserved_cost = reserved_cost - total.cost, reserved_tokens = reserved_tokens - total.tokens,
        reserved_calls = reserved_calls - total.n, spent_cost = spent_cost + total.charged_cost,
        spent_tokens = spent_tokens + total.charged_tokens, spent_calls = spent_calls + total.charged_calls,
        uncosted_calls = uncosted_calls + total.uncosted, estimated_calls = estimated_calls + total.estimated
    from total
    where root_id = root and total.n > 0;

    select * into b from budgets where root_id = root;
    while granted < portion loop
        exit when b.spent_calls + b.reserved_calls >= b.max_calls;
        select * into w from reservations
        where root_id = root and state = 'waiting'
            and (b.max_cost is null or b.spent_cost + b.reserved_cost + coalesce(cost, 0) <= b.max_cost)
            and (b.max_tokens is null or b.spent_tokens + b.reserved_tokens + tokens <= b.max_tokens)
        order by asked_at, execution_id
        limit 1;
        exit when not found;
        if longhaul_wake(w.execution_id, 'budget') then
            update reservations set state = 'open' where execution_id = w.execution_id and step_key = w.step_key;
            update budgets
            set reserved_cost = reserved_cost + coalesce(w.cost, 0), reserved_tokens = reserved_tokens + w.tokens,
                reserved_calls = reserved_calls + 1
            where root_id = root
            returning * into b;
            granted := granted + 1;
            return next w.execution_id;
        else
            delete from reservations where execution_id = w.execution_id and step_key = w.step_key;
        end if;
    end loop;
end
$$;

-- Reserves for model calls of attempts that this worker holds. One row per item it could look at: what is missing is locked by
-- somebody, or its lease is lost. Items come in the order in which they shall be granted.
create function longhaul_reserve(
    worker uuid, ids uuid[], tokens uuid[], step_keys bytea[], costs bigint[], amounts bigint[]
) returns table (place int, verdict text, wake_seq int)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    root uuid;
    b budgets;
    item record;
    e executions;
    r reservations;
begin
    perform from workers where id = worker and dead_at is null and expires_at > clock_timestamp() for key share;
    if not found then
        return;
    end if;
    for root in
        select distinct coalesce(x.root_id, x.id)
        from unnest(ids) as asked (id) join executions x on x.id = asked.id
        where x.has_budget
        order by 1
    loop
        -- A tree whose budget somebody else has at hand goes into the next batch; the others do not wait for it.
        select * into b from budgets where root_id = root for no key update skip locked;
        continue when not found;
        perform longhaul_fold_budget(root, 100);
        for item in
            select * from unnest(ids, tokens, step_keys, costs, amounts) with ordinality
                as asked (id, token, step_key, cost, amount, place)
            order by place
        loop
            select * into e from executions x
            where x.id = item.id and coalesce(x.root_id, x.id) = root and x.worker_id = worker and x.lease_token = item.token
            for no key update skip locked;
            continue when not found;
            if e.cancel_requested_at is not null then
                return query select item.place::int, 'cancelled', e.wake_seq;
                continue;
            end if;
            select * into r from reservations x where x.execution_id = item.id and x.step_key = item.step_key;
            if found and r.state = 'open' then
                if r.lease_token is null or r.lease_token = item.token then
                    -- Granted while it waited, or granted before to this very attempt.
                    update reservations x set lease_token = item.token
                    where x.execution_id = item.id and x.step_key = item.step_key;
                    return query select item.place::int, 'granted', e.wake_seq;
                    continue;
                end if;
                -- An earlier attempt died with it: its call may have been made and is charged at its estimate. The next one, under
                -- the same key, reserves again.
                update budgets x
                set reserved_cost = x.reserved_cost - coalesce(r.cost, 0), reserved_tokens = x.reserved_tokens - r.tokens,
                    reserved_calls = x.reserved_calls - 1, spent_cost = x.spent_cost + coalesce(r.cost, 0),
                    spent_tokens = x.spent_tokens + r.tokens, spent_calls = x.spent_calls + 1,
                    uncosted_calls = x.uncosted_calls + (r.cost is null)::int, estimated_calls = x.estimated_calls + 1
                where x.root_id = root;
                delete from reservations x where x.execution_id = item.id and x.step_key = item.step_key;
            end if;
            select * into b from budgets x where x.root_id = root;
            if b.max_cost is not null and item.cost is null then
                return query select item.place::int, 'unpriced', e.wake_seq;
            elsif (b.max_cost is null or b.spent_cost + b.reserved_cost + coalesce(item.cost, 0) <= b.max_cost)
                and (b.max_tokens is null or b.spent_tokens + b.reserved_tokens + item.amount <= b.max_tokens)
                and (b.max_calls is null or b.spent_calls + b.reserved_calls < b.max_calls)
            then
                update budgets x
                set reserved_cost = x.reserved_cost + coalesce(item.cost, 0), reserved_tokens = x.reserved_tokens + item.amount,
                    reserved_calls = x.reserved_calls + 1
                where x.root_id = root;
                insert into reservations (execution_id, step_key, root_id, state, asked_at, lease_token, cost, tokens)
                values (item.id, item.step_key, root, 'open', longhaul_now(), item.token, item.cost, item.amount)
                on conflict (execution_id, step_key) do update
                set state = 'open', lease_token = excluded.lease_token, cost = excluded.cost, tokens = excluded.tokens;
                return query select item.place::int, 'granted', e.wake_seq;
            elsif b.on_exhausted = 'fail' then
                return query select item.place::int, 'exhausted', e.wake_seq;
            else
                -- Whoever frees something finds it, from now on, and raises the counter that this answer carries.
                insert into reservations (execution_id, step_key, root_id, state, asked_at, cost, tokens)
                values (item.id, item.step_key, root, 'waiting', longhaul_now(), item.cost, item.amount)
                on conflict (execution_id, step_key) do update set cost = excluded.cost, tokens = excluded.tokens;
                return query select item.place::int, 'waiting', e.wake_seq;
            end if;
        end loop;
    end loop;
end
$$;

-- Sets the caps of a running tree and wakes who now fits. A null leaves a cap as it is. Returns the executions it woke; the
-- caller has seen that the tree has a budget.
create function longhaul_raise_budget(root uuid, cost bigint, tokens bigint, calls bigint, portion int) returns setof uuid
    language plpgsql volatile
    as $$
begin
    update budgets
    set max_cost = coalesce(cost, max_cost), max_tokens = coalesce(tokens, max_tokens), max_calls = coalesce(calls, max_calls)
    where root_id = root;
    with told as (
        update executions set event_seq = event_seq + 1 where id = root and finished_at is null returning id, event_seq
    )
    insert into events (execution_id, seq, at, kind, data)
    select told.id, told.event_seq, longhaul_now(), 'budget_raised', jsonb_strip_nulls(jsonb_build_object(
        'max_cost_nanousd', b.max_cost, 'max_tokens', b.max_tokens, 'max_model_calls', b.max_calls
    ))
    from told join budgets b on b.root_id = told.id;
    return query select * from longhaul_fold_budget(root, portion);
end
$$;

-- What an execution that ends leaves of its budget: what waits is forgotten, what was granted and never taken is free again, and
-- a call that may have been made is charged at its estimate.
create function longhaul_settle_rest() returns trigger
    language plpgsql
    as $$
begin
    delete from reservations where execution_id = new.id and state = 'waiting';
    update reservations
    set state = 'settled', is_estimate = lease_token is not null, charged_calls = (lease_token is not null)::int,
        charged_cost = case when lease_token is not null then cost end,
        charged_tokens = case when lease_token is not null then tokens else 0 end
    where execution_id = new.id and state = 'open';
    return null;
end
$$;

create trigger executions_settle after update of finished_at on executions
    for each row
    when (old.finished_at is null and new.finished_at is not null and new.has_budget)
    execute function longhaul_settle_rest();

create or replace view execution_overview as
select
    e.id,
    t.org_id,
    nullif(t.group_id, '') as group_id,
    e.definition_key,
    d.version as definition_version,
    e.agent_key,
    a.version as agent_version,
    e.queue,
    e.priority,
    e.status::text as status,
    e.wait_reason,
    e.wait_until,
    e.failure_class,
    e.failure_code,
    p.failure_summary,
    e.attempt as attempts,
    e.transient_retries + e.tool_error_retries + e.llm_error_retries as retries,
    e.turns,
    e.calls,
    e.input_tokens,
    e.output_tokens,
    e.created_at,
    e.started_at,
    e.finished_at,
    extract(epoch from e.started_at - e.created_at)::float8 as wait_seconds,
    extract(epoch from e.finished_at - e.created_at)::float8 as total_seconds,
    extract(epoch from e.active_time)::float8 as active_seconds,
    e.worker_id,
    e.retry_of,
    e.metadata,
    p.input,
    p.output,
    e.parent_id,
    coalesce(e.root_id, e.id) as root_id,
    e.depth,
    e.forked_from,
    case when e.uncosted_turns = 0 then e.cost / 1000000000.0 end as cost_usd
from executions e
join tenants t on t.id = e.tenant_id
join execution_payloads p on p.execution_id = e.id
left join definition_versions d on d.id = e.definition_version_id
left join agent_versions a on a.id = e.agent_version_id;
