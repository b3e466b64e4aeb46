-- Where executions wait for a worker whose tenants are not among $2, at most $3 tenants. Of each list and range of $1
-- the tenants with work are found one by one, and each is one index probe.
select gap.queue as "queue!", gap.serve_key as "serve_key!", found.tenant_id as "tenant_id!"
from unnest($1::claim_gap[]) as gap
cross join lateral (
    with recursive found (tenant_id) as (
        (
            select x.tenant_id from executions x
            where x.wait_reason = 'worker' and x.queue = gap.queue and x.serve_key = gap.serve_key and x.lane = 0
                and x.tenant_id > gap.above and x.tenant_id < gap.below
            order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
            limit 1
        )
        union all
        select next.tenant_id from found cross join lateral (
            select x.tenant_id from executions x
            where x.wait_reason = 'worker' and x.queue = gap.queue and x.serve_key = gap.serve_key and x.lane = 0
                and x.tenant_id > found.tenant_id and x.tenant_id < gap.below
            order by x.tenant_id, (x.started_at is null), longhaul_claim_rank(x.created_at, x.priority), x.id
            limit 1
        ) next
    )
    select found.tenant_id from found where found.tenant_id <> all ($2::uuid[])
) found
limit $3
