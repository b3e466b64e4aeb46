-- Views for dashboards: what each column means, and time filters that read no whole table (docs/reference/sql.md).

-- Rows of about the same time are in about the same place.
create index executions_created on executions using brin (created_at) with (autosummarize = on);
create index executions_finished on executions using brin (finished_at) with (autosummarize = on);

-- The payloads are joined from the left, so that a query without their columns does not read them.
create or replace view execution_overview as
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
left join execution_payloads p on p.execution_id = e.id
left join definition_versions d on d.id = e.definition_version_id
left join agent_versions a on a.id = e.agent_version_id;

comment on view execution_overview is
    'Executions, one row each, with input and output. Times in seconds, money in US dollars.';
comment on column execution_overview.id is
    'UUIDv7: sorts by the time of the submit. Compare with longhaul_uuid_floor(time) to read a span of time.';
comment on column execution_overview.org_id is 'Tenant: its organisation.';
comment on column execution_overview.group_id is 'Tenant: its group; null without.';
comment on column execution_overview.definition_key is 'Key of the definition that it runs.';
comment on column execution_overview.definition_version is 'Version of the definition, pinned at the submit.';
comment on column execution_overview.agent_key is 'Key of the agent that the definition asks.';
comment on column execution_overview.agent_version is 'Version of the agent, pinned at the submit.';
comment on column execution_overview.queue is 'Queue that workers claim it from.';
comment on column execution_overview.priority is '0 to 9; the highest runs first within a tenant and queue.';
comment on column execution_overview.status is
    'PENDING, IN_PROGRESS, FINISHED or FAILED. The last two are ends.';
comment on column execution_overview.wait_reason is
    'Reason why it does not run; null while it runs and once it has ended.';
comment on column execution_overview.wait_until is
    'Time at which the wait ends by itself; null if something else ends it.';
comment on column execution_overview.failure_class is
    'Class of the failure, which decides about retries; null unless it failed.';
comment on column execution_overview.failure_code is
    'Code of the failure (docs/reference/failures.md); null unless it failed.';
comment on column execution_overview.failure_summary is
    'One sentence about the failure. May quote a provider, tool or validator.';
comment on column execution_overview.failure_detail is 'Detail of the failure, as text.';
comment on column execution_overview.attempts is
    'Leases that it was given: the first run, retries, resumptions and runs after a worker died.';
comment on column execution_overview.retries is
    'Retries after failures: transient ones, of tools and of model replies.';
comment on column execution_overview.turns is 'Recorded model calls, failed ones included.';
comment on column execution_overview.calls is 'Recorded tool calls.';
comment on column execution_overview.input_tokens is 'Tokens that model calls read.';
comment on column execution_overview.output_tokens is 'Tokens that model calls wrote.';
comment on column execution_overview.cached_tokens is 'Part of input_tokens that came from a cache of the provider.';
comment on column execution_overview.cache_write_tokens is
    'Part of input_tokens that was written to a cache of the provider.';
comment on column execution_overview.created_at is 'Time of the submit.';
comment on column execution_overview.started_at is 'Time of the first lease; null before.';
comment on column execution_overview.finished_at is 'Time of its end; null before.';
comment on column execution_overview.wait_seconds is 'Seconds from the submit to the first lease.';
comment on column execution_overview.total_seconds is 'Seconds from the submit to the end.';
comment on column execution_overview.active_seconds is 'Seconds under leases: waits and backoffs left out.';
comment on column execution_overview.worker_id is 'Worker that holds its lease; null while none does.';
comment on column execution_overview.retry_of is 'Execution that this one repeats, by hand or for a task of a project.';
comment on column execution_overview.metadata is 'JSON object of the submitter.';
comment on column execution_overview.input is 'Input as JSON. May hold personal data.';
comment on column execution_overview.output is 'Output as JSON; null unless it finished. May hold personal data.';
comment on column execution_overview.parent_id is 'Execution that started it as a sub-agent; null outside trees.';
comment on column execution_overview.root_id is 'Topmost execution of its tree; its own id outside trees.';
comment on column execution_overview.depth is 'Executions above it in its tree.';
comment on column execution_overview.forked_from is 'Execution whose history it continues.';
comment on column execution_overview.cost_usd is
    'Cost of its model calls; null while the price of one of them is unknown.';

comment on view execution_stats is
    'Executions counted by tenant, definition, agent, day and status: kept up to date, read without their rows.';
comment on column execution_stats.org_id is 'Tenant: its organisation.';
comment on column execution_stats.group_id is 'Tenant: its group; null without.';
comment on column execution_stats.definition_key is 'Key of the definition.';
comment on column execution_stats.agent_key is 'Key of the agent.';
comment on column execution_stats.day is 'Day of the submit, UTC.';
comment on column execution_stats.status is 'Status that they have now.';
comment on column execution_stats.executions is 'Number of executions. Goes down when they are pruned.';

comment on view execution_usage is
    'Model and tool calls by execution and name. Filter by execution_id: only those weeks are read.';
comment on column execution_usage.execution_id is 'Execution that made the calls.';
comment on column execution_usage.kind is 'model or tool.';
comment on column execution_usage.name is 'Name of the model or tool.';
comment on column execution_usage.calls is 'Recorded calls.';
comment on column execution_usage.errors is 'Calls that failed.';
comment on column execution_usage.input_tokens is 'Tokens that model calls read.';
comment on column execution_usage.output_tokens is 'Tokens that model calls wrote.';
comment on column execution_usage.cached_tokens is 'Part of input_tokens that came from a cache of the provider.';
comment on column execution_usage.cache_write_tokens is
    'Part of input_tokens that was written to a cache of the provider.';
comment on column execution_usage.cost_usd is 'Cost of the calls whose price is known; null if none is.';
comment on column execution_usage.seconds is 'Time from the start of each call to its end, added up.';

comment on view live_workers is 'Workers that have not been declared dead, one row per process.';
comment on column live_workers.id is 'Id of the process; a restarted one has another.';
comment on column live_workers.host is 'Name of its machine.';
comment on column live_workers.pid is 'Its process id.';
comment on column live_workers.build is 'Version of its program.';
comment on column live_workers.queues is 'Queues that it claims from.';
comment on column live_workers.serves is 'What it can run: tools, validators, definitions and formats of the journal.';
comment on column live_workers.concurrency is 'Executions that it runs at a time.';
comment on column live_workers.started_at is 'Time of its start.';
comment on column live_workers.expires_at is 'Time after which it counts as dead unless it gives another sign of life.';
comment on column live_workers.steady_since is 'Start of the uninterrupted signs of life.';
comment on column live_workers.memory_bytes is 'Resident memory at the last sign of life.';

comment on view sub_agents is 'Sub-agents, one row each, with goal and result.';
comment on column sub_agents.id is 'Execution of the sub-agent.';
comment on column sub_agents.root_execution_id is 'Topmost execution of its tree.';
comment on column sub_agents.parent_id is 'Execution that started it.';
comment on column sub_agents.session_id is 'Session that the topmost execution answers in; null outside sessions.';
comment on column sub_agents.depth is 'Executions above it.';
comment on column sub_agents.role is 'Key of its agent.';
comment on column sub_agents.goal is 'Prompt that it was started with. May hold personal data.';
comment on column sub_agents.tools is 'Lists of patterns that its tools must match, its parent first; null without.';
comment on column sub_agents.model is 'Name of the model of its agent.';
comment on column sub_agents.status is 'pending, running, completed, cancelled, timed_out or failed.';
comment on column sub_agents.strategy is 'Way in which its result joins those of its siblings; null for none.';
comment on column sub_agents.partial_result is 'Beginning of the last text that it recorded. May hold personal data.';
comment on column sub_agents.result is 'Output as JSON. May hold personal data.';
comment on column sub_agents.error is 'One sentence about its failure.';
comment on column sub_agents.token_usage is 'Tokens that its model calls read and wrote.';
comment on column sub_agents.created_at is 'Time of its start by the parent.';
comment on column sub_agents.started_at is 'Time of its first lease; null before.';
comment on column sub_agents.finished_at is 'Time of its end; null before.';
