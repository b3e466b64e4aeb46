-- Views for people and BI tools.

-- One row per execution. Times are in seconds; `cost_usd` is null while the cost of a model call is unknown.
create view execution_overview as
select
    e.id,
    t.org_id,
    nullif(t.group_id, '') as group_id,
    e.definition_key,
    d.version as definition_version,
    e.agent_key,
    a.version as agent_version,
    e.queue,
    e.priority,
    e.status::text as status,
    e.wait_reason,
    e.wait_until,
    e.failure_class,
    e.failure_code,
    p.failure_summary,
    p.failure_detail,
    e.attempt as attempts,
    e.transient_retries + e.tool_error_retries + e.llm_error_retries as retries,
    e.turns,
    e.calls,
    e.input_tokens,
    e.output_tokens,
    e.cached_tokens,
    e.cache_write_tokens,
    e.created_at,
    e.started_at,
    e.finished_at,
    extract(epoch from e.started_at - e.created_at)::float8 as wait_seconds,
    extract(epoch from e.finished_at - e.created_at)::float8 as total_seconds,
    extract(epoch from e.active_time)::float8 as active_seconds,
    e.worker_id,
    e.retry_of,
    e.metadata,
    p.input,
    p.output,
    e.parent_id,
    coalesce(e.root_id, e.id) as root_id,
    e.depth,
    e.forked_from,
    case when e.uncosted_turns = 0 then e.cost / 1000000000.0 end as cost_usd
from executions e
join tenants t on t.id = e.tenant_id
join execution_payloads p on p.execution_id = e.id
left join definition_versions d on d.id = e.definition_version_id
left join agent_versions a on a.id = e.agent_version_id;

-- Numbers of executions by tenant, definition, agent, day (UTC) and status.
create view execution_stats as
select
    t.org_id,
    nullif(t.group_id, '') as group_id,
    c.definition_key,
    c.agent_key,
    c.day,
    c.status::text as status,
    sum(c.n)::bigint as executions
from (
    select * from execution_counts
    union all
    select * from execution_count_changes
) c
join tenants t on t.id = c.tenant_id
group by t.org_id, t.group_id, c.definition_key, c.agent_key, c.day, c.status
having sum(c.n) <> 0;

-- Use of models and tools by execution, kind (`model`, `tool`) and name. `cost_usd` leaves out calls of unknown cost.
-- A read of one execution, or of a range of ids, reads the partitions of those ids only.
create view execution_usage as
select
    s.execution_id,
    case s.kind when 'call' then 'tool' else 'model' end as kind,
    coalesce(s.name, '') as name,
    count(*) as calls,
    count(*) filter (where s.failure_code is not null) as errors,
    sum(s.input_tokens) as input_tokens,
    sum(s.output_tokens) as output_tokens,
    sum(s.cached_tokens) as cached_tokens,
    sum(s.cache_write_tokens) as cache_write_tokens,
    sum(s.cost) / 1000000000.0 as cost_usd,
    extract(epoch from sum(s.finished_at - s.started_at))::float8 as seconds
from steps s
where s.kind in ('turn', 'call', 'aggregation') and s.attempt > 0
group by s.execution_id, s.kind, coalesce(s.name, '');
