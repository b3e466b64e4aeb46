-- Calls one by one, so that a question about models or tools aggregates once and not by execution first. A compression
-- of the context is a model call that is paid for, as `executions.cost` has it.
create view execution_calls as
select
    s.execution_id,
    case s.kind when 'call' then 'tool' else 'model' end as kind,
    coalesce(s.name, '') as name,
    s.failure_code is not null as is_error,
    s.input_tokens,
    s.output_tokens,
    s.cached_tokens,
    s.cache_write_tokens,
    s.cost * 0.000000001 as cost_usd,
    s.started_at,
    extract(epoch from s.finished_at - s.started_at)::float8 as seconds
from steps s
where s.kind in ('turn', 'call', 'compression', 'aggregation') and s.attempt > 0;

-- Turns and compressions by one model are one row.
create or replace view execution_usage as
select
    execution_id,
    kind,
    name,
    count(*) as calls,
    count(*) filter (where is_error) as errors,
    sum(input_tokens) as input_tokens,
    sum(output_tokens) as output_tokens,
    sum(cached_tokens) as cached_tokens,
    sum(cache_write_tokens) as cache_write_tokens,
    sum(cost_usd) as cost_usd,
    sum(seconds) as seconds
from execution_calls
group by execution_id, kind, name;

comment on view execution_calls is
    'Model and tool calls, one row each. Filter by execution_id: only those weeks are read.';
comment on column execution_calls.execution_id is 'Execution that made the call.';
comment on column execution_calls.kind is 'model or tool.';
comment on column execution_calls.name is 'Name of the model or tool.';
comment on column execution_calls.is_error is 'Whether it failed.';
comment on column execution_calls.input_tokens is 'Tokens that the model read; null for tools.';
comment on column execution_calls.output_tokens is 'Tokens that the model wrote; null for tools.';
comment on column execution_calls.cached_tokens is 'Part of input_tokens that came from a cache of the provider.';
comment on column execution_calls.cache_write_tokens is
    'Part of input_tokens that was written to a cache of the provider.';
comment on column execution_calls.cost_usd is 'Cost; null for tools, and while the price is unknown.';
comment on column execution_calls.started_at is 'Start of the call.';
comment on column execution_calls.seconds is 'Time from its start to its end; null while it has none.';
