-- Sub-agents: what a parent waits for, their limits, judged results and their record (docs/adr/0049-sub-agents.md).

-- Children that a waiting call of an execution waits for: the wait is over when all have ended or, if
-- `until_first`, when one has finished. The rows of an execution are deleted when it ends.
create table child_waits (
    parent_id uuid not null,
    call_key bytea not null,
    children uuid[] not null,
    until_first boolean not null,
    primary key (parent_id, call_key)
);

-- One row per sub-agent. `tools` are the lists of patterns that its tools must match, its parent's first; null if it
-- was started without. `partial_result` is the begin of the last text that it has recorded.
create view sub_agents as
select
    e.id,
    e.root_id as root_execution_id,
    e.parent_id,
    root.session_id,
    e.depth,
    e.agent_key as role,
    p.input ->> 'prompt' as goal,
    p.overrides #> '{sub_agent,tools}' as tools,
    a.spec #>> '{model,name}' as model,
    case
        when e.status = 'PENDING' then 'pending'
        when e.status = 'IN_PROGRESS' then 'running'
        when e.status = 'FINISHED' then 'completed'
        when e.failure_code = 'cancelled' then 'cancelled'
        when e.failure_code = 'deadline_exceeded' then 'timed_out'
        else 'failed'
    end as status,
    p.overrides #>> '{sub_agent,strategy}' as strategy,
    (
        select s.preview from steps s
        where s.execution_id = e.id and s.kind = 'turn' and s.state = 'live' and s.preview <> ''
        order by s.seq desc limit 1
    ) as partial_result,
    p.output as result,
    p.failure_summary as error,
    e.input_tokens + e.output_tokens as token_usage,
    e.created_at,
    e.started_at,
    e.finished_at
from executions e
join execution_payloads p on p.execution_id = e.id
left join executions root on root.id = e.root_id
left join agent_versions a on a.id = e.agent_version_id
where e.parent_id is not null;
