-- Locks an execution that the calling statement is about to change through a trigger. Returns false if another
-- transaction has it, so that a batch leaves out that row instead of waiting (core-rules 9). An execution that is
-- over needs no lock.
create or replace function longhaul_try_lock(execution uuid) returns boolean
    language sql volatile
    as $$
        select exists (select from executions where id = execution and finished_at is null
            for no key update skip locked)
            or not exists (select from executions where id = execution and finished_at is null)
    $$;
