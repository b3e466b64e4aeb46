-- Returns true if a wait for children is over. Volatile, as its callers are: it sees what they wait for.
create or replace function longhaul_wait_over(wait child_waits) returns boolean
    language sql volatile
    as $$
        select not exists (select from executions c where c.id = any (wait.children) and c.finished_at is null)
            or wait.until_first
                and exists (select from executions c where c.id = any (wait.children) and c.status = 'FINISHED')
    $$;
