-- Wakes an execution that may wait for `reason` (core-rules 3): adds 1 to `wake_seq`, and makes it runnable if it
-- is parked for that reason. Waits for the row, so that a park under way is seen. Returns false if the execution
-- is over.
create or replace function longhaul_wake(execution uuid, reason text) returns boolean
    language plpgsql volatile
    as $$
declare
    e executions;
    is_woken boolean;
begin
    select * into e from executions where id = execution and finished_at is null for no key update;
    if not found then
        return false;
    end if;
    is_woken := coalesce(e.wait_reason = reason, false);
    if is_woken then
        perform longhaul_unpark(e.id);
        insert into events (execution_id, seq, at, kind, data)
        values (e.id, e.event_seq + 1, longhaul_now(), 'woken', jsonb_build_object('waited_for', reason));
    end if;
    update executions
    set wake_seq = e.wake_seq + 1, event_seq = e.event_seq + is_woken::int,
        wait_reason = case when is_woken then 'worker' else e.wait_reason end,
        wait_until = case when not is_woken then e.wait_until end
    where id = e.id;
    return true;
end
$$;
