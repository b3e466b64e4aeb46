-- Reserves budget for model calls of attempts that this worker holds. Returns one row per item it could examine:
-- for a missing one another statement has locked the row, or the lease is lost. Grants within a tree in the order
-- of the items. A call whose prompt and longest reply do not fit is granted a shorter reply, of at least
-- `least_reply` tokens; `reply_limit` is the limit granted. One that does not fit and may not wait is answered 'short',
-- and nothing is stored.
--
-- Lock order: the worker's row (key share), budgets by root, executions, reservations; budgets and executions
-- with `skip locked`.
create or replace function longhaul_reserve(worker uuid, items call_reservation[])
    returns table (place int, verdict text, wake_seq int, reply_limit bigint)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    root uuid;
    is_at_hand boolean;
    b budgets;
    item record;
    e executions;
    r reservations;
    reply bigint;
begin
    perform from workers where id = worker and dead_at is null for key share;
    if not found then
        return;
    end if;
    for item in
        select asked.*, asked.ordinality as place, coalesce(x.budget_id, x.root_id, x.id) as root
        from unnest(items) with ordinality as asked join executions x on x.id = asked.id
        where x.has_budget
        order by coalesce(x.budget_id, x.root_id, x.id), asked.ordinality
    loop
        if root is distinct from item.root then
            root := item.root;
            -- A tree whose budget another transaction has locked goes into the next batch; the others do not wait
            -- for it.
            perform from budgets where root_id = root for no key update skip locked;
            is_at_hand := found;
            if is_at_hand then
                perform longhaul_fold_budget(root, 100);
            end if;
        end if;
        continue when not is_at_hand;
        select * into e from executions x
        where x.id = item.id and coalesce(x.budget_id, x.root_id, x.id) = root
            and x.worker_id is not distinct from worker
            and x.lease_token = item.token
        for no key update skip locked;
        continue when not found;
        if e.cancel_requested_at is not null then
            return query select item.place::int, 'cancelled', e.wake_seq, null::bigint;
            continue;
        end if;
        select * into r from reservations x where x.execution_id = item.id and x.step_key = item.step_key;
        if found and r.state = 'open' then
            if r.lease_token is null or r.lease_token = item.token then
                -- Granted while it waited, or granted to this attempt before.
                update reservations x set lease_token = item.token
                where x.execution_id = item.id and x.step_key = item.step_key;
                return query select item.place::int, 'granted', e.wake_seq, r.reply_tokens;
                continue;
            end if;
            -- An earlier attempt died with this reservation: its call may have been made and is charged at its
            -- estimate. The next attempt reserves again with the same limit: a request repeated under its
            -- idempotency key must be the same request.
            item.prompt_cost := r.prompt_cost;
            item.prompt := r.prompt_tokens;
            item.reply := r.reply_tokens;
            item.least_reply := r.reply_tokens;
            item.may_wait := true;
            update budgets x
            set reserved_cost = x.reserved_cost - coalesce(r.cost, 0), reserved_tokens = x.reserved_tokens - r.tokens,
                reserved_calls = x.reserved_calls - 1, spent_cost = x.spent_cost + coalesce(r.cost, 0),
                spent_tokens = x.spent_tokens + r.tokens, spent_calls = x.spent_calls + 1,
                uncosted_calls = x.uncosted_calls + (r.cost is null)::int, estimated_calls = x.estimated_calls + 1
            where x.root_id = root;
            delete from reservations x where x.execution_id = item.id and x.step_key = item.step_key;
        end if;
        if r.state = 'waiting' and r.least_reply_tokens = r.reply_tokens then
            -- It waits for exactly this limit, that of a call which may have been made.
            item.reply := r.reply_tokens;
            item.least_reply := r.reply_tokens;
        end if;
        select * into b from budgets x where x.root_id = root;
        reply := longhaul_reply_limit(b, item.prompt_cost, item.prompt, item.reply_price, item.reply, item.least_reply);
        if b.max_cost is not null and item.prompt_cost is null then
            return query select item.place::int, 'unpriced', e.wake_seq, null::bigint;
        elsif reply is not null then
            insert into reservations (
                execution_id, step_key, root_id, state, asked_at, lease_token, cost, tokens, prompt_cost,
                prompt_tokens, reply_price,
                reply_tokens, least_reply_tokens
            )
            values (
                item.id, item.step_key, root, 'open', longhaul_now(), item.token,
                longhaul_call_cost(item.prompt_cost, reply, item.reply_price), item.prompt + reply, item.prompt_cost,
                item.prompt,
                item.reply_price, reply, item.least_reply
            )
            on conflict (execution_id, step_key) do update
            set state = 'open', lease_token = excluded.lease_token, cost = excluded.cost, tokens = excluded.tokens,
                prompt_cost = excluded.prompt_cost, prompt_tokens = excluded.prompt_tokens,
                reply_price = excluded.reply_price,
                reply_tokens = excluded.reply_tokens, least_reply_tokens = excluded.least_reply_tokens
            returning * into r;
            update budgets x
            set reserved_cost = x.reserved_cost + coalesce(r.cost, 0), reserved_tokens = x.reserved_tokens + r.tokens,
                reserved_calls = x.reserved_calls + 1
            where x.root_id = root;
            return query select item.place::int, 'granted', e.wake_seq, reply;
        elsif not item.may_wait and (b.max_calls is null or b.spent_calls + b.reserved_calls < b.max_calls) then
            return query select item.place::int, 'short', e.wake_seq, null::bigint;
        elsif b.on_exhausted = 'fail' then
            return query select item.place::int, 'exhausted', e.wake_seq, null::bigint;
        else
            -- From now on a transaction that frees budget finds this row, and raises the `wake_seq` that is
            -- returned here.
            insert into reservations (
                execution_id, step_key, root_id, state, asked_at, cost, tokens, prompt_cost, prompt_tokens,
                reply_price, reply_tokens,
                least_reply_tokens
            )
            values (
                -- The clock stands still within a statement: its place keeps the item in the order of its batch.
                item.id, item.step_key, root, 'waiting', longhaul_now() + item.place * interval '1 microsecond',
                longhaul_call_cost(item.prompt_cost, item.least_reply, item.reply_price),
                item.prompt + item.least_reply,
                item.prompt_cost, item.prompt, item.reply_price, item.reply, item.least_reply
            )
            on conflict (execution_id, step_key) do update
            set cost = excluded.cost, tokens = excluded.tokens, prompt_cost = excluded.prompt_cost,
                prompt_tokens = excluded.prompt_tokens, reply_price = excluded.reply_price,
                reply_tokens = excluded.reply_tokens,
                least_reply_tokens = excluded.least_reply_tokens;
            return query select item.place::int, 'waiting', e.wake_seq, null::bigint;
        end if;
    end loop;
end
$$;
