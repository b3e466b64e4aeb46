-- Executions submitted in a range of ids by agent, the one that fails most first, each with its most frequent failure
-- codes and the newest failure of each. At most $4 executions are read (`usage_spend.sql`), $5 agents and $6 codes of
-- each are returned.
with chosen as (
    select e.id, e.agent_key, e.status, e.failure_class, e.failure_code
    from executions e
    where $1::uuid[] is null and e.id >= $2 and e.id < $3
    union all
    select e.id, e.agent_key, e.status, e.failure_class, e.failure_code
    from unnest($1) t (id)
    cross join lateral (
        select e.id, e.agent_key, e.status, e.failure_class, e.failure_code
        from executions e
        where (e.tenant_id, e.id) >= (t.id, $2) and (e.tenant_id, e.id) < (t.id, $3)
        limit $4
    ) e
    limit $4
),
counted as (
    -- Only a FAILED execution has a failure.
    select
        agent_key, failure_class, failure_code, count(*) as executions,
        count(*) filter (where status = 'FINISHED') as finished,
        max(id::text collate "C") filter (where failure_code is not null)::uuid as newest
    from chosen
    group by agent_key, failure_class, failure_code
),
agents as (
    select
        agent_key, sum(executions) as executions, sum(finished) as finished,
        coalesce(sum(executions) filter (where failure_code is not null), 0) as failed,
        sum(sum(executions)) over () as all_executions, sum(sum(finished)) over () as all_finished,
        coalesce(sum(sum(executions) filter (where failure_code is not null)) over (), 0) as all_failed
    from counted
    group by agent_key
    order by failed desc, executions desc, agent_key
    limit $5
),
failures as (
    select *, row_number() over (partition by agent_key order by executions desc, failure_code) as place
    from counted
    where failure_code is not null
)
select
    a.agent_key as "agent!",
    a.executions::bigint as "executions!",
    a.finished::bigint as "finished!",
    a.failed::bigint as "failed!",
    a.all_executions::bigint as "all_executions!",
    a.all_finished::bigint as "all_finished!",
    a.all_failed::bigint as "all_failed!",
    f.failure_code as "code?",
    f.failure_class as "class?",
    f.executions as "of_code?",
    f.newest as "newest?",
    left(p.failure_summary, 500) as summary
from agents a
left join failures f on f.agent_key = a.agent_key and f.place <= $6
left join execution_payloads p on p.execution_id = f.newest
order by a.failed desc, a.executions desc, a.agent_key, f.place
