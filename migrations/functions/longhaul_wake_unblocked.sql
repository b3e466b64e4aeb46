-- Predicate `is_over` of the reason `provider_down` (core-rules 3): wakes executions whose breaker is closed or
-- that are in no line. A safety net, as the wakes leave it nothing to find. Also deletes the waits of executions
-- that have ended, and old failures, breakers and rates.
create or replace function longhaul_wake_unblocked(most int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    id uuid;
    unparked uuid[];
begin
    for id in
        select p.execution_id
        from parked p
        left join provider_waits w on w.execution_id = p.execution_id
        left join provider_breakers b on (b.provider, b.model, b.key) = (w.provider, w.model, w.key)
        where p.wait_reason = 'provider_down'
            and (w.execution_id is null or w.is_released or b.state is null or b.state = 'closed')
        order by p.execution_id
        limit most
    loop
        -- One that another transaction has locked is left for the next look: nothing waits while it holds locks.
        if longhaul_try_lock(id) and longhaul_wake(id, 'provider_down') then
            return next id;
        end if;
    end loop;
    -- Only an execution that is not parked can be over: those are looked up by id, not joined.
    unparked := array(
        select w.execution_id from provider_waits w
        where not exists (select from parked p where p.execution_id = w.execution_id)
    );
    delete from provider_waits w
    where w.execution_id = any (unparked)
        and not exists (select from executions e where e.id = w.execution_id and e.finished_at is null offset 0);
    delete from provider_failures f where f.at < longhaul_now() - interval '2 hours';
    -- Agents name models freely. A closed breaker is kept for a week, for people.
    delete from provider_breakers b
    where b.state = 'closed' and b.concurrency is null and coalesce(b.closed_until, '-infinity') < longhaul_now()
        and coalesce(b.since, '-infinity') < longhaul_now() - interval '7 days'
        and not exists (select from provider_failures f
            where (f.provider, f.model, f.key) = (b.provider, b.model, b.key));
    delete from provider_rates r where greatest(r.requests_at, r.tokens_at) < longhaul_now() - interval '1 day';
end
$$;
