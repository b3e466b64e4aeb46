-- Where executions wait for a worker whose tenants are not among $2, at most $3 tenants. Of each list and range of $1
-- the tenants with work are found one by one, and each is one index probe.
select gap.queue as "queue!", gap.serve_key as "serve_key!", found.tenant_id as "tenant_id!"
from unnest($1::claim_gap[]) as gap
cross join lateral longhaul_tenants_in_line(gap.queue, gap.serve_key, 0::smallint, gap.above, gap.below)
    as found (tenant_id)
where found.tenant_id <> all ($2::uuid[])
limit $3
