-- Endpoints with an open breaker, a limit or a line, one row each, and at least one row: the clock and the number of
-- workers.
with recursive line as (
    (
        select w.provider, w.model, w.key from provider_waits w
        where w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
        order by w.provider, w.model, w.key limit 1
    )
    union all
    -- The index provider_waits_full leads from each endpoint to the next one, past its waiting executions.
    select next.provider, next.model, next.key
    from line, lateral (
        select w.provider, w.model, w.key from provider_waits w
        where w.reason = 'rate_limit' and w.pass_at is null and not w.is_released
            and (w.provider, w.model, w.key) > (line.provider, line.model, line.key)
        order by w.provider, w.model, w.key limit 1
    ) next
)
select longhaul_now() as "now!",
    coalesce((select (told ->> 'live')::bigint from sweep_duties where duty = $1 order by taken_at desc limit 1), 1)
        as "workers!",
    b.provider as "provider?", b.model as "model?", b.key as "key?", b.is_closed as "is_closed?", b.concurrency,
    b.calls_per_second, b.has_line as "has_line?", b.closed_until
from (select) as one
left join (
    select provider, model, key, bool_and(is_closed) as is_closed, min(concurrency) as concurrency,
        min(calls_per_second) as calls_per_second,
        bool_or(has_line) as has_line, max(closed_until) as closed_until
    from (
        select provider, model, key, state = 'closed' as is_closed, concurrency, calls_per_second, false as has_line,
            closed_until
        from provider_breakers
        where state <> 'closed' or concurrency is not null or calls_per_second is not null
        union all
        select provider, model, key, state = 'closed', concurrency, calls_per_second, false, closed_until
        from provider_breakers
        where closed_until > longhaul_now() and closed_until is not null
        union all
        select provider, model, key, true, null::int, null::float8, true, null::timestamptz from line
    ) as each
    group by 1, 2, 3
) as b on true
