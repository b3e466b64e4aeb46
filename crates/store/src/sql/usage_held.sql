-- Numbers of executions submitted in a range of ids, and of their model and tool calls. Reads at most $4 executions.
select count(*) as "executions!", coalesce(sum(e.turns + e.calls), 0)::bigint as "calls!"
from (
    select turns, calls from executions where $1::uuid[] is null and id >= $2 and id < $3
    union all
    select e.turns, e.calls
    from unnest($1) t (id)
    cross join lateral (
        -- Only the index of tenants and ids answers a comparison of rows: that of ids alone has the executions of
        -- all tenants.
        select turns, calls from executions where (tenant_id, id) >= (t.id, $2) and (tenant_id, id) < (t.id, $3)
        limit $4
    ) e
    limit $4
) e
