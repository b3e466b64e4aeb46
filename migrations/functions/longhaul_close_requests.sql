-- Closes the open requests of an execution that ends. The caller has locked the execution. Volatile, as
-- `longhaul_unpark` is: the caller's snapshot may be older than a request that it waited for.
create or replace function longhaul_close_requests(execution uuid) returns void
    language sql volatile
    as $$
        update human_requests set state = 'closed', decided_at = longhaul_now()
        where execution_id = execution and state = 'waiting'
    $$;
