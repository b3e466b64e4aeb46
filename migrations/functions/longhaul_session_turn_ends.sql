-- Gives the turn of a session to its next message, in the transaction that ends the execution of the one before.
-- Volatile, so that each statement has its own snapshot and sees rows it waited for. Lock order: the execution that
-- ends (the caller's), the session, the next execution. A queued execution that ends does not lock the session,
-- which is its own order of locks; the session's next is looked for under its lock.
create or replace function longhaul_session_turn_ends() returns trigger
    language plpgsql volatile
    as $$
declare
    next record;
    started uuid;
begin
    update session_turns set state = 'ended' where execution_id = new.id;
    perform from sessions where id = new.session_id and running = new.id for no key update;
    if not found then
        return null;
    end if;
    for next in
        select t.number, t.execution_id from session_turns t
        where t.session_id = new.session_id and t.state = 'queued'
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
        select id, event_seq, new.finished_at, 'woken', jsonb_build_object('waited_for', 'concurrency_limit')
        from executions where id = started;
        update session_turns set state = 'running' where session_id = new.session_id and number = next.number;
        exit;
    end loop;
    update sessions set running = started, active_at = new.finished_at where id = new.session_id;
    return null;
end
$$;

create or replace trigger executions_session after update of finished_at on executions
    for each row
    when (old.finished_at is null and new.finished_at is not null and new.session_id is not null)
    execute function longhaul_session_turn_ends();
