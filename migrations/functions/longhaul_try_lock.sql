-- Locks an execution that another statement is about to change through a trigger: false when somebody else has it, so
-- that a batch leaves out the one row that would wait instead of stalling (core-rules 9). What is over needs no lock.
create or replace function longhaul_try_lock(execution uuid) returns boolean
    language sql volatile
    as $$
        select exists (select from executions where id = execution and finished_at is null for no key update skip locked)
            or not exists (select from executions where id = execution and finished_at is null)
    $$;
