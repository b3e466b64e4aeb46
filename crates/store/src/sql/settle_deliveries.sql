-- Stores the attempts $3 to $6 of the lane of endpoint $1 held under $2: id, outcome, status and error of each. Returns
-- why the endpoint is disabled by them: it answered 410, or nothing was delivered for $7 seconds. Otherwise the lane is
-- held for $8 seconds from now.
with lane as materialized (
    select id, failures, failing_since, longhaul_now() as now from webhook_endpoints
    where id = $1 and lane_token = $2 and lane_until > clock_timestamp()
    for no key update
),
attempt as materialized (
    select * from unnest($3::uuid[], $4::text[], $5::int[], $6::text[]) as a (id, outcome, status, error)
),
judged as materialized (
    select
        bool_or(attempt.outcome = 'delivered') as has_delivered,
        bool_or(attempt.outcome in ('away', 'refused')) as has_failed,
        bool_or(attempt.outcome = 'away') as is_away,
        bool_or(attempt.outcome = 'gone') as is_gone,
        case
            when bool_or(attempt.outcome = 'delivered') then 5
            else least(5 * 2 ^ least(max(lane.failures), 10), 300)
        end * interval '1 second' as pause
    from lane, attempt
),
stored as (
    update webhook_deliveries d
    set attempts = d.attempts + 1, attempted_at = lane.now, status = attempt.status, error = attempt.error,
        delivered_at = case when attempt.outcome = 'delivered' then lane.now else d.delivered_at end,
        next_at = case
            when attempt.outcome <> 'delivered' and lane.now + wait.time < d.expires_at then lane.now + wait.time
        end
    from lane, judged, attempt, lateral (
        select case
            -- Tenths are left to chance, so that deliveries refused together do not come together.
            when attempt.outcome = 'refused' then (0.9 + random() * 0.2) * interval '1 second'
                * (array[5, 300, 1800, 7200, 18000, 36000, 50400, 72000])[least(o.attempts + 1, 8)]
            -- After the others that are due, so that one which it cannot take does not stop them; not later than the
            -- lane may be closed for.
            else judged.pause
        end as time
        from webhook_deliveries o where o.id = attempt.id
    ) wait
    where d.id = attempt.id and d.endpoint_id = lane.id and d.next_at is not null
)
update webhook_endpoints w
set delivered_at = case when has_delivered then lane.now else w.delivered_at end,
    failing_since = case
        when has_delivered and not has_failed then null
        when has_delivered then lane.now
        when has_failed then coalesce(w.failing_since, lane.now)
        else w.failing_since
    end,
    failures = case when is_away and has_delivered then 1 when is_away then w.failures + 1
        when has_delivered then 0 else w.failures end,
    closed_until = case when is_away then lane.now + pause when has_delivered then null else w.closed_until end,
    lane_until = case when because is null then clock_timestamp() + $8::float8 * interval '1 second' end,
    disabled_at = case when because is not null then lane.now else w.disabled_at end,
    disabled_because = coalesce(because, w.disabled_because)
from lane, judged, lateral (
    select case
        when is_gone then 'gone'
        when has_failed and not has_delivered and lane.failing_since < lane.now - $7::float8 * interval '1 second'
            then 'failures'
    end as because
) verdict
where w.id = lane.id and w.disabled_at is null
returning because
