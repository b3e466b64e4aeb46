-- Model calls of the executions submitted in a range of ids, by tenant, agent and model, the most expensive first; the
-- row without a tenant is the sum of all. At most $4 executions are read and $5 groups returned: the caller has chosen
-- the range so that it holds no more.
with chosen as (
    select e.id, e.tenant_id, e.agent_key, e.retry_of is not null or e.forked_from is not null as is_copy
    from executions e
    where $1::uuid[] is null and e.id >= $2 and e.id < $3
    union all
    select e.id, e.tenant_id, e.agent_key, e.is_copy
    from unnest($1) t (id)
    cross join lateral (
        select e.id, e.tenant_id, e.agent_key, e.retry_of is not null or e.forked_from is not null as is_copy
        from executions e
        where (e.tenant_id, e.id) >= (t.id, $2) and (e.tenant_id, e.id) < (t.id, $3)
        limit $4
    ) e
    limit $4
),
grouped as (
    select
        c.tenant_id, c.agent_key, s.name, count(*) as calls, sum(s.input_tokens) as input_tokens,
        sum(s.output_tokens) as output_tokens, sum(s.cached_tokens) as cached_tokens, sum(s.cost) as cost,
        -- A failed call is free: providers charge for answers.
        count(*) filter (where s.cost is null and s.failure_code is null) as uncosted_calls
    from chosen c
    cross join lateral (
        select coalesce(s.name, '') as name, s.input_tokens, s.output_tokens, s.cached_tokens, s.cost, s.failure_code
        from steps s
        -- The bounds name the partitions before the first look. A copy begins with the steps of its origin, which
        -- no counter of the copy bounds: the search backwards for the last of them reads its own steps only.
        where s.execution_id = c.id and s.execution_id >= $2 and s.execution_id < $3
            and (not c.is_copy or s.seq > coalesce(
                (
                    select o.seq from steps o
                    where o.execution_id = c.id and o.execution_id >= $2 and o.execution_id < $3 and o.attempt = 0
                    order by o.seq desc
                    limit 1
                ),
                -1
            ))
            and s.kind in ('turn', 'compression', 'aggregation') and s.attempt > 0 and s.state <> 'intent'
        -- Keeps it a look by id per execution: a join might scan the history of all tenants.
        offset 0
    ) s
    group by grouping sets ((c.tenant_id, c.agent_key, s.name), ())
)
select
    t.org_id as "org_id?",
    nullif(t.group_id, '') as group_id,
    g.agent_key as "agent?",
    g.name as "model?",
    g.calls as "calls!",
    coalesce(g.input_tokens, 0) as "input_tokens!",
    coalesce(g.output_tokens, 0) as "output_tokens!",
    coalesce(g.cached_tokens, 0) as "cached_tokens!",
    coalesce(g.cost, 0)::bigint as "cost!",
    g.uncosted_calls as "uncosted_calls!"
from grouped g
left join tenants t on t.id = g.tenant_id
order by g.tenant_id is not null, g.cost desc nulls last, g.calls desc, t.org_id, g.agent_key, g.name
limit $5::bigint + 1
