-- Declares one worker dead, and records what it held. Waits for the worker's writes under way; what is read after
-- the lock is therefore the last that the worker did (core-rules 2, 25).
create or replace function longhaul_retire(worker uuid) returns void
    language plpgsql volatile
    as $$
begin
    perform from workers where id = worker and dead_at is null for update;
    if not found then
        return;
    end if;
    update workers w
    set dead_at = clock_timestamp(),
        suspects = (select count(*) from executions e where e.worker_id = w.id and e.crash_count >= 2),
        memory_bytes = (
            select h.memory_bytes from worker_heartbeats h where h.worker_id = w.id order by h.expires_at desc limit 1
        )
    where w.id = worker;
end
$$;
