-- Sets the caps of a running tree, and wakes waiting executions that now fit and are not locked. A null leaves a
-- cap unchanged. Returns the executions woken. The caller has checked that the tree has a budget. Lock order: the
-- budget's row, then executions.
create or replace function longhaul_raise_budget(root uuid, cost bigint, tokens bigint, calls bigint, portion int)
    returns setof uuid
    language plpgsql volatile
    as $$
begin
    update budgets
    set max_cost = coalesce(cost, max_cost), max_tokens = coalesce(tokens, max_tokens),
        max_calls = coalesce(calls, max_calls)
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
