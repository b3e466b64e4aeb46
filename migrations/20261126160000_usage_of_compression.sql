-- A compression of the context is a model call that is paid for: the view has it, as `executions.cost` does. A model
-- that makes turns and compressions of an execution is one row.
create or replace view execution_usage as
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
where s.kind in ('turn', 'call', 'compression', 'aggregation') and s.attempt > 0
group by 1, 2, 3;
