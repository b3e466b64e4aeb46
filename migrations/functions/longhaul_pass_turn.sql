-- Gives the turn of a session to its next message after `execution` ended, in the transaction that ends it. Returns
-- false if another transaction has locked a row of the session: the turn is then passed on by the reaction `session`,
-- so that the end of an execution waits for no session. Repeating is harmless.
--
-- Volatile, so that each statement has its own snapshot and sees rows it waited for. Lock order: the execution that
-- ends (the caller's), its turn, the session, the next execution. A queued execution that ends does not lock the
-- session, which is its own order of locks; the session's next is looked for under its lock.
create or replace function longhaul_pass_turn(execution uuid, session uuid) returns boolean
    language plpgsql volatile
    as $$
declare
    next record;
    started uuid;
    over_at timestamptz;
begin
    perform from session_turns t where t.execution_id = execution for no key update skip locked;
    if not found then
        return not exists (select from session_turns t where t.execution_id = execution);
    end if;
    update session_turns t set state = 'ended' where t.execution_id = execution;
    perform from sessions s where s.id = session and s.running = execution for no key update skip locked;
    if not found then
        return not exists (select from sessions s where s.id = session and s.running = execution);
    end if;
    over_at := (select e.finished_at from executions e where e.id = execution);
    for next in
        select t.number, t.execution_id from session_turns t
        where t.session_id = session and t.state = 'queued'
        order by t.number
    loop
        update executions
        set wait_reason = 'worker', wait_until = null, wake_seq = wake_seq + 1, event_seq = event_seq + 1
        where id = next.execution_id and wait_reason = 'concurrency_limit' and finished_at is null
        returning id into started;
        -- It may have been cancelled meanwhile.
        continue when started is null;
        perform longhaul_unpark(started);
        insert into events (execution_id, seq, at, kind, data)
        select id, event_seq, over_at, 'woken', jsonb_build_object('waited_for', 'concurrency_limit')
        from executions where id = started;
        update session_turns set state = 'running' where session_id = session and number = next.number;
        exit;
    end loop;
    update sessions set running = started, active_at = over_at where id = session;
    return true;
end
$$;
