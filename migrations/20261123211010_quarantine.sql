-- Executions that killed their workers, and their release (docs/adr/0019-quarantine.md).

-- Activity that a suspect announced before it began it. One row per suspect, overwritten.
create table suspect_notes (
    execution_id uuid primary key,
    worker_id uuid not null,
    attempt int not null,
    phase text not null,
    memory_bytes bigint,
    at timestamptz not null
) with (fillfactor = 50);

-- One row for each execution that ended as `crash_loop`, written by the statement that ended it.
create table quarantine (
    execution_id uuid primary key,
    tenant_id uuid not null,
    definition_key text not null,
    definition_version_id uuid not null,
    agent_key text not null,
    agent_version_id uuid not null,
    queue text not null,
    quarantined_at timestamptz not null,
    deadline_at timestamptz not null,
    -- True for a child. Its parent was told of its end and has gone on, so no execution waits for a retry of it.
    is_child boolean not null,
    -- Deaths since the last progress, oldest first: at, attempt, worker_id, host, build, memory_bytes.
    deaths jsonb not null,
    -- Last step of the journal: seq, kind, state, name. Null if none was recorded.
    last_step jsonb,
    -- Activity at the last death.
    phase text not null,
    memory_bytes bigint,
    -- Retry that released it. Unique, and set by the statement that stores the retry.
    released_as uuid unique,
    released_at timestamptz,
    -- Time at which its caller cancelled it.
    withdrawn_at timestamptz
);
create index quarantine_tenant on quarantine (tenant_id, execution_id);
create index quarantine_shut on quarantine (tenant_id, definition_version_id, agent_version_id, execution_id)
    where released_as is null and withdrawn_at is null;

-- Groups of quarantined executions: those of one tenant that run the same definition and agent version. A row
-- lives as long as an execution of it can be released or is held back.
create table quarantine_groups (
    tenant_id uuid not null,
    definition_version_id uuid not null,
    agent_version_id uuid not null,
    definition_key text not null,
    agent_key text not null,
    -- Queues that its executions were claimed from.
    queues text[] not null,
    -- shut: waits for a build not in `died_builds`. canary: one execution is tried. releasing: the rest is
    -- released.
    state text not null check (state in ('shut', 'canary', 'releasing')),
    -- Builds of the workers that it killed, the last eight, newest last.
    died_builds text[] not null,
    canary uuid,
    -- Time since which new executions are held back; null while they are not.
    held_since timestamptz,
    next_release_at timestamptz,
    changed_at timestamptz not null,
    primary key (tenant_id, definition_version_id, agent_version_id)
);
