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
    is_held bool;
    over_at timestamptz;
begin
    perform from session_turns t where t.execution_id = execution for no key update skip locked;
    if not found then
        return not exists (select from session_turns t where t.execution_id = execution);
    end if;
    -- A message that was answered before the cancel reached it is not withdrawn: its reader was told the end.
    update session_turns t set state = 'ended', is_rolled_back = t.is_rolled_back and e.status <> 'FINISHED'
    from executions e where t.execution_id = execution and e.id = execution;
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
        -- Quarantine may hold back new executions of its version; then it waits in its turn.
        select exists (
            select from quarantine_groups g join executions e
                on (e.tenant_id, e.definition_version_id, e.agent_version_id)
                    = (g.tenant_id, g.definition_version_id, g.agent_version_id)
            where e.id = next.execution_id and g.held_since is not null
        ) into is_held;
        update executions
        set wait_reason = case when is_held then 'queue_paused' else 'worker' end,
            wait_until = case when is_held then deadline_at end, wake_seq = wake_seq + 1, event_seq = event_seq + 1
        where id = next.execution_id and wait_reason = 'concurrency_limit' and finished_at is null
        returning id into started;
        -- It may have been cancelled meanwhile.
        continue when started is null;
        if is_held then
            update parked set wait_reason = 'queue_paused' where execution_id = started;
        else
            perform longhaul_unpark(started);
        end if;
        insert into events (execution_id, seq, at, kind, data)
        select id, event_seq, over_at, case when is_held then 'parked' else 'woken' end,
            case when is_held then jsonb_build_object('wait_reason', 'queue_paused', 'held_by', 'quarantine')
                else jsonb_build_object('waited_for', 'concurrency_limit') end
        from executions where id = started;
        update session_turns set state = 'running' where session_id = session and number = next.number;
        exit;
    end loop;
    update sessions set running = started, active_at = over_at where id = session;
    return true;
end
$$;
