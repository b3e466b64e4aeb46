-- Takes up to $2 lanes with something due under the token $1 for $3 seconds. They go to the tenants that hold fewest:
-- $4 and $5 are the lanes that this process holds by tenant, $6 the most that a tenant has afterwards, or null. The
-- list is of endpoints with something to deliver, one look at the index for each, however much waits.
with recursive busy as (
    (select endpoint_id from webhook_deliveries where next_at is not null order by endpoint_id limit 1)
    union all
    select (
        select d.endpoint_id from webhook_deliveries d
        where d.next_at is not null and d.endpoint_id > busy.endpoint_id order by d.endpoint_id limit 1
    )
    from busy where busy.endpoint_id is not null
),
due as (
    select w.id, coalesce(held.lanes, 0)
        + row_number() over (partition by w.tenant_id order by w.lane_until nulls first, w.id) as turn
    from busy
    join webhook_endpoints w on w.id = busy.endpoint_id
    left join unnest($4::uuid[], $5::bigint[]) held (tenant_id, lanes) on held.tenant_id = w.tenant_id
    cross join lateral (
        select d.next_at from webhook_deliveries d
        where d.endpoint_id = w.id and d.next_at is not null order by d.next_at limit 1
    ) first
    where w.disabled_at is null and first.next_at <= longhaul_now()
        and (w.closed_until is null or w.closed_until <= longhaul_now())
        and (w.lane_until is null or w.lane_until <= clock_timestamp())
),
chosen as materialized (
    -- Locked, so that two processes take different ones; looked at again, because another may have taken it meanwhile.
    select w.id
    from due join webhook_endpoints w on w.id = due.id
    where $6::bigint is null or due.turn <= $6
    order by due.turn, due.id
    limit $2
    for no key update of w skip locked
)
update webhook_endpoints w
set lane_token = $1, lane_until = clock_timestamp() + $3::float8 * interval '1 second'
from chosen
where w.id = chosen.id and (w.lane_until is null or w.lane_until <= clock_timestamp())
returning w.id, w.tenant_id, w.kind, coalesce(w.sealed_url, w.url) as "url!", w.secret_number,
    coalesce(w.old_secret_until > longhaul_now(), false) as "signs_twice!",
    w.failing_since is not null or w.delivered_at is null as "is_doubtful!"
