-- Sessions: long-lived conversations with one agent, whose messages become executions (docs/adr/0045-sessions.md).

create table sessions (
    id uuid primary key,
    tenant_id uuid not null,
    -- Pinned at the start: every message runs by this version.
    agent_key text not null,
    agent_version int not null,
    -- Policy for a message that arrives while another is answered, unless the message names one.
    on_busy text not null check (on_busy in ('reject', 'enqueue', 'interrupt', 'rollback')),
    metadata jsonb not null,
    submitted_by uuid,
    -- Idempotency key of the request that began the session, and the hash of that request.
    idempotency_key text,
    request_hash bytea,
    created_at timestamptz not null,
    -- Time of the last message or answer.
    active_at timestamptz not null,
    -- Time of an explicit end; a message reopens the session.
    ended_at timestamptz,
    -- Execution that answers a message now; null while idle.
    running uuid,
    -- Messages accepted, and those of them that are part of the transcript.
    turns int not null default 0,
    folded int not null default 0,
    -- Number of the last message of the transcript.
    last_seq int not null default 0,
    -- Bytes of the transcript, before compression.
    bytes bigint not null default 0
) with (fillfactor = 70);
create index sessions_tenant on sessions (tenant_id, id);
create unique index sessions_idempotency on sessions (tenant_id, idempotency_key) where idempotency_key is not null;

-- One row per message that a caller sent, with the execution that answers it.
create table session_turns (
    session_id uuid not null references sessions on delete cascade,
    number int not null,
    execution_id uuid not null unique,
    state text not null check (state in ('queued', 'running', 'ended')),
    -- Policy that was applied when the message arrived.
    on_busy text not null,
    -- True if a later message withdrew this one: it is no part of the transcript, but for a note of its effects.
    is_rolled_back boolean not null default false,
    primary key (session_id, number)
) with (fillfactor = 70);

-- The transcript. Rows are never updated: a summary names the messages that it stands for.
create table session_messages (
    session_id uuid not null references sessions on delete cascade,
    seq int not null,
    execution_id uuid not null,
    -- Exact bytes of the message, compressed.
    body bytea not null,
    -- First and last number of the messages that this one replaces; null if it is no summary.
    replaces_first int,
    replaces_last int,
    -- True for a reply that an interrupt cut off.
    is_interrupted boolean not null default false,
    primary key (session_id, seq),
    check ((replaces_first is null) = (replaces_last is null))
);

-- A session to create, with its budget if `on_exhausted` is set.
create type new_session as (
    id uuid,
    tenant_id uuid,
    agent_key text,
    agent_version int,
    on_busy text,
    metadata jsonb,
    submitted_by uuid,
    idempotency_key text,
    request_hash bytea,
    on_exhausted text,
    max_cost bigint,
    max_tokens bigint,
    max_calls bigint
);

-- A message to append to a transcript.
create type transcript_message as (
    seq int,
    execution_id uuid,
    body bytea,
    replaces_first int,
    replaces_last int,
    is_interrupted boolean
);
