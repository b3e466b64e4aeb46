-- Tenants between two ids with executions that wait for a worker, of one queue, serve key and lane, in the order of
-- their ids: one index probe for each, as far as they are read. PostgreSQL writes the body into the calling statement,
-- because it is one `select` and stable.
create or replace function longhaul_tenants_in_line(
    of_queue text, of_serve_key text, of_lane smallint, above uuid, below uuid
) returns setof uuid
    language sql stable
    as $$
    with recursive found (tenant_id) as (
        (
            select x.tenant_id from executions x
            where x.wait_reason = 'worker' and x.queue = of_queue and x.serve_key = of_serve_key and x.lane = of_lane
                and x.tenant_id > above and x.tenant_id < below
            order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
            limit 1
        )
        union all
        select next.tenant_id from found cross join lateral (
            select x.tenant_id from executions x
            where x.wait_reason = 'worker' and x.queue = of_queue and x.serve_key = of_serve_key and x.lane = of_lane
                and x.tenant_id > found.tenant_id and x.tenant_id < below
            order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
            limit 1
        ) next
    )
    select found.tenant_id from found
$$;
