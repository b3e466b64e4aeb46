-- Takes up to $2 lanes with something due under the token $1 for $4 seconds, of them up to $3 doubtful ones: those to
-- which nothing was delivered since their last failure, or ever. So dead endpoints leave room for others. Tenants take
-- turns. The list is of endpoints with something to deliver, one look at the index for each, however much waits.
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
    select w.id, w.failing_since is not null or w.delivered_at is null as is_doubtful,
        row_number() over (partition by w.tenant_id order by w.lane_until nulls first, w.id) as turn
    from busy
    join webhook_endpoints w on w.id = busy.endpoint_id
    cross join lateral (
        select d.next_at from webhook_deliveries d
        where d.endpoint_id = w.id and d.next_at is not null order by d.next_at limit 1
    ) first
    where w.disabled_at is null and first.next_at <= longhaul_now()
        and (w.closed_until is null or w.closed_until <= longhaul_now())
        and (w.lane_until is null or w.lane_until <= clock_timestamp())
),
ranked as (
    select id, is_doubtful, turn, row_number() over (partition by is_doubtful order by turn, id) as place from due
),
chosen as materialized (
    -- Locked, so that two processes take different ones; looked at again, because another may have taken it meanwhile.
    select w.id, ranked.is_doubtful
    from ranked join webhook_endpoints w on w.id = ranked.id
    where not ranked.is_doubtful or ranked.place <= $3
    order by ranked.is_doubtful, ranked.turn, ranked.id
    limit $2
    for update of w skip locked
)
update webhook_endpoints w
set lane_token = $1, lane_until = clock_timestamp() + $4::float8 * interval '1 second'
from chosen
where w.id = chosen.id and (w.lane_until is null or w.lane_until <= clock_timestamp())
returning w.id, w.tenant_id, w.kind, coalesce(w.sealed_url, w.url) as "url!", w.secret_number,
    coalesce(w.old_secret_until > longhaul_now(), false) as "signs_twice!", chosen.is_doubtful as "is_doubtful!"
