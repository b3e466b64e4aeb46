-- Returns true if one of the waits of an execution for children is over, or if it has no open child. Volatile, so
-- that it has a snapshot of its own: called under the execution's lock, it sees every end that held that lock before.
create or replace function longhaul_children_over(execution uuid) returns boolean
    language sql volatile
    as $$
        select exists (select from child_waits w where w.parent_id = execution and longhaul_wait_over(w))
            or not exists (select from executions c where c.parent_id = execution and c.finished_at is null)
    $$;
