-- Executions that killed their workers, and when they are tried again (docs/adr/0019-quarantine.md).

-- What an execution under suspicion is about to do, said before it does it. One row each, overwritten.
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
    -- Its parent was told of its end and has gone on, so nobody waits for a retry of it.
    is_child boolean not null,
    -- The deaths since it last made progress, oldest first: at, attempt, worker_id, host, build, memory_bytes.
    deaths jsonb not null,
    -- The last step of its journal: seq, kind, state, name. Null when it never recorded one.
    last_step jsonb,
    -- What it was doing at the last death.
    phase text not null,
    memory_bytes bigint,
    -- The retry that released it. Unique, and set by the statement that stores the retry.
    released_as uuid unique,
    released_at timestamptz,
    -- Its caller wants it no more.
    withdrawn_at timestamptz
);
create index quarantine_tenant on quarantine (tenant_id, execution_id);
create index quarantine_shut on quarantine (tenant_id, definition_version_id, agent_version_id, execution_id)
    where released_as is null and withdrawn_at is null;

-- What is quarantined together: the executions of one tenant that run the same definition and agent version. A row lives as long as
-- somebody can be released or is held back.
create table quarantine_groups (
    tenant_id uuid not null,
    definition_version_id uuid not null,
    agent_version_id uuid not null,
    definition_key text not null,
    agent_key text not null,
    -- From which queues they were claimed.
    queues text[] not null,
    -- shut: waits for a build that is not among those that died. canary: one of it is tried. releasing: the rest goes.
    state text not null check (state in ('shut', 'canary', 'releasing')),
    -- The builds of workers that it killed, the last eight, newest last.
    died_builds text[] not null,
    canary uuid,
    -- Since when new executions are held back; null while they are not.
    held_since timestamptz,
    next_release_at timestamptz,
    changed_at timestamptz not null,
    primary key (tenant_id, definition_version_id, agent_version_id)
);
