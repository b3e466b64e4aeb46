-- Tells a parent that a child ended, in the transaction that ends the child; there is no other way (core-rules
-- 3). An end that ends one of the parent's waits makes it runnable if it is parked for an event; a park under way is
-- caught by `wake_seq`. Volatile, so that each statement has its own snapshot and sees rows it waited for. Lock
-- order: the child (the caller's), then the parent.
create or replace function longhaul_child_ended(child executions) returns void
    language plpgsql volatile
    as $$
declare
    parent executions;
    is_woken boolean;
begin
    select * into parent from executions where id = child.parent_id and finished_at is null for no key update;
    if not found then
        return;
    end if;
    is_woken := coalesce(parent.wait_reason, '') in ('children', 'approval', 'input')
        and longhaul_children_over(parent.id);
    -- A wait wakes the parent once.
    delete from child_waits w where w.parent_id = parent.id and longhaul_wait_over(w);
    insert into events (execution_id, seq, at, kind, data)
    values (parent.id, parent.event_seq + 1, child.finished_at, 'child_ended', jsonb_strip_nulls(jsonb_build_object(
        'child_id', child.id, 'status', child.status, 'failure_code', child.failure_code, 'open_children',
        parent.open_children - 1
    )));
    if is_woken then
        perform longhaul_unpark(parent.id);
        insert into events (execution_id, seq, at, kind, data)
        values (parent.id, parent.event_seq + 2, child.finished_at, 'woken',
            jsonb_build_object('waited_for', parent.wait_reason));
    end if;
    update executions
    set open_children = parent.open_children - 1, wake_seq = parent.wake_seq + 1,
        event_seq = parent.event_seq + 1 + is_woken::int,
        wait_reason = case when is_woken then 'worker' else parent.wait_reason end,
        wait_until = case when not is_woken then parent.wait_until end
    where id = parent.id;
end
$$;
