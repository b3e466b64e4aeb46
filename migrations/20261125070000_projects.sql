-- Projects: a goal, the plan of its tasks, and their executions (docs/adr/0053-projects.md).

-- Project whose task or plan the execution is; null outside projects.
alter table executions add column project_id uuid;
create index executions_project on executions (project_id, id) where project_id is not null;

create table projects (
    id uuid primary key,
    tenant_id uuid not null,
    name text not null,
    goal text not null,
    -- Agent of its planner, and of tasks that name none.
    agent_key text not null,
    execution_strategy text not null check (execution_strategy in ('sequential', 'parallel', 'dag')),
    max_parallel_tasks int not null,
    needs_approval boolean not null,
    queue text not null,
    metadata jsonb not null,
    submitted_by uuid,
    -- Idempotency key of the request that created the project, and the hash of that request.
    idempotency_key text,
    request_hash bytea,
    created_at timestamptz not null,
    deadline_at timestamptz,
    status text not null check (status in ('pending', 'planning', 'awaiting_approval', 'approved', 'in_progress',
        'paused', 'completed', 'failed', 'cancelled')),
    -- Reason of a pause: a request, or a gate after a phase.
    pause_reason text check (pause_reason in ('request', 'gate')),
    -- Time from which on it waits for its turn to run.
    line_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    failure_code text,
    failure_summary text,
    -- Execution that made, or makes, the plan.
    planner_id uuid,
    -- Number of the plan; 0 without one. Each edit makes another.
    plan_version int not null default 0,
    -- Position of the phase that runs.
    phase int not null default 0,
    event_seq int not null default 0,
    -- Tasks by status.
    pending int not null default 0,
    running int not null default 0,
    completed int not null default 0,
    failed int not null default 0,
    skipped int not null default 0,
    cancelled int not null default 0,
    constraint a_pause_has_a_reason check ((status = 'paused') = (pause_reason is not null)),
    constraint an_end_has_a_time check ((status in ('completed', 'failed', 'cancelled')) = (finished_at is not null))
) with (fillfactor = 50);
create index projects_tenant on projects (tenant_id, id);
create unique index projects_idempotency on projects (tenant_id, idempotency_key) where idempotency_key is not null;
create index projects_open on projects (tenant_id) where finished_at is null;
-- Those that run, of which a tenant has few, and those that wait for their turn.
create index projects_running on projects (tenant_id) where status = 'in_progress';
create index projects_line on projects (tenant_id, line_at, id) where status = 'approved';
create index projects_due on projects (deadline_at) where finished_at is null and deadline_at is not null;

-- Agents that the tasks of a project may name, with the versions that they run.
create table project_agents (
    project_id uuid not null references projects on delete cascade,
    agent_key text not null,
    agent_version_id uuid not null,
    -- The built-in definition that runs it.
    definition_version_id uuid not null,
    serve_key text not null,
    requirements text[] not null,
    -- Budget of each of its executions, as JSON, if the project has none.
    budget text,
    primary key (project_id, agent_key)
);

-- Phases in order. `open` counts the tasks that have not ended.
create table project_phases (
    project_id uuid not null references projects on delete cascade,
    position int not null,
    name text not null,
    -- True if the project waits for a person after the phase, and false again once that person let it go on.
    has_gate boolean not null,
    -- Replaces the project's own.
    execution_strategy text check (execution_strategy in ('sequential', 'parallel', 'dag')),
    open int not null default 0,
    primary key (project_id, position)
) with (fillfactor = 70);

create table project_tasks (
    project_id uuid not null references projects on delete cascade,
    key text not null,
    -- Place in the plan.
    position int not null,
    phase int not null,
    title text not null,
    prompt text not null,
    -- Null for the project's own agent.
    agent_key text,
    depends_on text[] not null,
    retries int not null,
    timeout_seconds int,
    status text not null default 'pending' check (status in ('pending', 'running', 'completed', 'failed', 'skipped',
        'cancelled')),
    -- The last execution.
    execution_id uuid,
    attempts int not null default 0,
    -- Tasks that it depends on and that have not completed.
    remaining_deps int not null,
    -- True while it is pending and `remaining_deps` is 0: what may start, in the order of the plan. A column, because
    -- an index on `remaining_deps` would make every count-down a new index entry.
    is_ready boolean not null,
    started_at timestamptz,
    finished_at timestamptz,
    failure_code text,
    primary key (project_id, key),
    constraint a_ready_task_is_pending check (not is_ready or (status = 'pending' and remaining_deps = 0))
) with (fillfactor = 70);
create index project_tasks_ready on project_tasks (project_id, phase, position) where is_ready;
create unique index project_tasks_execution on project_tasks (execution_id);

-- The edges of `depends_on`, read from a task to those that depend on it.
create table project_edges (
    project_id uuid not null references projects on delete cascade,
    key text not null,
    dependant text not null,
    primary key (project_id, key, dependant)
);

-- Reasons to look at a project again: an execution of it that ended, or a change by a person. Only ever inserted and
-- deleted, so that executions of one project that end in many batches do not wait for each other.
create table project_signals (
    project_id uuid not null,
    execution_id uuid
);
create index project_signals_project on project_signals (project_id);

create table project_events (
    project_id uuid not null references projects on delete cascade,
    seq int not null,
    at timestamptz not null,
    kind text not null,
    data jsonb not null,
    primary key (project_id, seq)
);

-- A project to create, with its budget if `on_exhausted` is set.
create type new_project as (
    id uuid,
    tenant_id uuid,
    name text,
    goal text,
    agent_key text,
    execution_strategy text,
    max_parallel_tasks int,
    needs_approval boolean,
    queue text,
    metadata jsonb,
    submitted_by uuid,
    idempotency_key text,
    request_hash bytea,
    deadline_seconds float8,
    on_exhausted text,
    max_cost bigint,
    max_tokens bigint,
    max_calls bigint
);

create type project_agent as (
    agent_key text,
    agent_version_id uuid,
    definition_version_id uuid,
    serve_key text,
    requirements text[],
    budget text
);

-- A project as a transaction that locked it leaves it.
create type project_state as (
    id uuid,
    status text,
    pause_reason text,
    is_end boolean,
    failure_code text,
    failure_summary text,
    plan_version int,
    phase int,
    pending int,
    running int,
    completed int,
    failed int,
    skipped int,
    cancelled int,
    event_seq int,
    at timestamptz
);

-- Rows of a plan.
create type project_phase as (
    position int,
    name text,
    has_gate boolean,
    execution_strategy text
);
create type project_task as (
    key text,
    position int,
    phase int,
    title text,
    prompt text,
    agent_key text,
    depends_on text[],
    retries int,
    timeout_seconds int,
    remaining_deps int,
    status text
);
