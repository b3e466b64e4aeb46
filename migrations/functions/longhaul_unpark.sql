-- Deletes the `parked` row of an execution that the calling statement has locked. Volatile, so that it has a
-- snapshot of its own: the statement's is older than a park that it waited for, and would leave that park's row
-- behind.
create or replace function longhaul_unpark(execution uuid) returns void
    language sql volatile
    as $$ delete from parked where execution_id = execution $$;
