-- Folds settled reservations into the budget, and grants what is free to waiting ones in the order in which they
-- asked, at most `portion`. Returns the executions woken.
--
-- Lock order: the budget's row (the caller's), executions, their reservations. An execution that another
-- transaction has locked stays in line for the next fold: a cancel locks a child and then its parent, and the two
-- would deadlock. Separate statements, because each must see what was committed before the lock was acquired; the
-- snapshot of one large statement is older (core-rules 12).
create or replace function longhaul_fold_budget(root uuid, portion int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    b budgets;
    w reservations;
    granted int := 0;
    is_over boolean;
    locked uuid[] := '{}';
    reply bigint;
begin
    with gone as (
        delete from reservations where root_id = root and state = 'settled' returning *
    ),
    total as (
        select count(*) as n, coalesce(sum(cost), 0) as cost, coalesce(sum(tokens), 0) as tokens,
            coalesce(sum(charged_cost), 0) as charged_cost, coalesce(sum(charged_tokens), 0) as charged_tokens,
            coalesce(sum(charged_calls), 0) as charged_calls,
            count(*) filter (where charged_calls > 0 and charged_cost is null) as uncosted,
            count(*) filter (where is_estimate) as estimated,
            coalesce(sum(greatest(charged_cost - cost, 0)), 0) as over_cost,
            coalesce(sum(greatest(charged_tokens - tokens, 0)), 0) as over_tokens,
            count(*) filter (where charged_cost > cost or charged_tokens > tokens) as over_calls
        from gone
    )
    update budgets
    set reserved_cost = reserved_cost - total.cost, reserved_tokens = reserved_tokens - total.tokens,
        reserved_calls = reserved_calls - total.n, spent_cost = spent_cost + total.charged_cost,
        spent_tokens = spent_tokens + total.charged_tokens, spent_calls = spent_calls + total.charged_calls,
        uncosted_calls = uncosted_calls + total.uncosted, estimated_calls = estimated_calls + total.estimated,
        over_limit_cost = over_limit_cost + total.over_cost, over_limit_tokens = over_limit_tokens + total.over_tokens,
        over_limit_calls = over_limit_calls + total.over_calls
    from total
    where root_id = root and total.n > 0;

    select * into b from budgets where root_id = root;
    while granted + cardinality(locked) < portion loop
        exit when b.spent_calls + b.reserved_calls >= b.max_calls;
        select * into w from reservations
        where root_id = root and state = 'waiting' and execution_id <> all (locked)
            and (b.max_cost is null or b.spent_cost + b.reserved_cost + coalesce(cost, 0) <= b.max_cost)
            and (b.max_tokens is null or b.spent_tokens + b.reserved_tokens + tokens <= b.max_tokens)
        order by asked_at, execution_id
        limit 1;
        exit when not found;
        select a.is_over into is_over from longhaul_wake_all(array[w.execution_id], 'budget') a;
        if not found then
            locked := locked || w.execution_id;
        elsif is_over then
            delete from reservations where execution_id = w.execution_id and step_key = w.step_key;
        else
            reply := longhaul_reply_limit(
                b, w.prompt_cost, w.prompt_tokens, w.reply_price, w.reply_tokens, w.least_reply_tokens
            );
            update reservations
            set state = 'open', reply_tokens = reply, cost = longhaul_call_cost(prompt_cost, reply, reply_price),
                tokens = prompt_tokens + reply
            where execution_id = w.execution_id and step_key = w.step_key
            returning * into w;
            update budgets
            set reserved_cost = reserved_cost + coalesce(w.cost, 0), reserved_tokens = reserved_tokens + w.tokens,
                reserved_calls = reserved_calls + 1
            where root_id = root
            returning * into b;
            granted := granted + 1;
            return next w.execution_id;
        end if;
    end loop;
end
$$;
