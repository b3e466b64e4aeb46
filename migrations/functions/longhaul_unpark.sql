-- Removes the row of an execution that is locked by the calling statement. Volatile, so that it looks with a snapshot
-- of its own: the statement's is older than a park that it waited for, and would leave that park's row behind.
create or replace function longhaul_unpark(execution uuid) returns void
    language sql volatile
    as $$ delete from parked where execution_id = execution $$;
