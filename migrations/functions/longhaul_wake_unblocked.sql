-- Predicate `is_over` of the reason `provider_down` (core-rules 3): wakes up to `most` executions in the lines of
-- endpoints whose breaker is closed. A safety net, as the wakes leave it nothing to find. Also deletes old failures,
-- breakers and rates. Reads one entry per endpoint with a line, however long the lines are.
create or replace function longhaul_wake_unblocked(most int) returns setof uuid
    language plpgsql volatile
    as $$
declare
    waiting uuid[];
    done uuid[];
    gone uuid[];
begin
    with recursive line as (
        (
            select w.provider, w.model, w.key from provider_waits w where not w.is_released
            order by w.provider, w.model, w.key limit 1
        )
        union all
        select next.provider, next.model, next.key from line cross join lateral (
            select w.provider, w.model, w.key from provider_waits w
            where not w.is_released and (w.provider, w.model, w.key) > (line.provider, line.model, line.key)
            order by w.provider, w.model, w.key limit 1
        ) next
    )
    select array_agg(found.execution_id) into waiting
    from (
        select head.execution_id
        from line
        left join provider_breakers b on (b.provider, b.model, b.key) = (line.provider, line.model, line.key)
        cross join lateral (
            select w.execution_id from provider_waits w
            where (w.provider, w.model, w.key) = (line.provider, line.model, line.key)
                and w.reason = 'provider_down' and not w.is_released
            order by w.priority desc, w.execution_id
            limit most
        ) head
        where b.state is null or b.state = 'closed'
        limit most
    ) found;
    -- One that another transaction has locked stays in its line: nothing waits while it holds locks.
    select array_agg(w.id) filter (where not w.is_over), array_agg(w.id) filter (where w.is_over) into done, gone
    from longhaul_wake_all(waiting, 'provider_down') w;
    update provider_waits w set is_released = true where w.execution_id = any (done);
    delete from provider_waits w where w.execution_id = any (gone);
    return query select * from unnest(done);
    delete from provider_failures f where f.ctid = any (array(
        select o.ctid from provider_failures o where o.at < longhaul_now() - interval '2 hours' order by o.at limit 1000
    ));
    -- Agents name models freely. A closed breaker is kept for a week, for people.
    delete from provider_breakers b where b.ctid = any (array(
        select o.ctid from provider_breakers o
        where o.state = 'closed' and o.concurrency is null and o.calls_per_second is null
            and coalesce(o.since, '-infinity') < longhaul_now() - interval '7 days'
            and coalesce(o.closed_until, '-infinity') < longhaul_now()
            and not exists (select from provider_failures f
                where (f.provider, f.model, f.key) = (o.provider, o.model, o.key))
        order by coalesce(o.since, '-infinity') limit 1000
    ));
    delete from provider_rates r where r.ctid = any (array(
        select o.ctid from provider_rates o
        where greatest(o.requests_at, o.tokens_at) < longhaul_now() - interval '1 day'
        order by greatest(o.requests_at, o.tokens_at) limit 1000
    ));
end
$$;
