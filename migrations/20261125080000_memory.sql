-- Memory of agents (docs/adr/0054-memory.md): episodes, and a graph of what they are about. A place is a tenant, an
-- agent and a scope; nothing of one place is read in another.

-- Sessions, and executions outside sessions, of which memory takes the exchanges.
create table memory_sources (
    -- The session or the execution.
    id uuid primary key,
    tenant_id uuid not null,
    agent_key text not null,
    agent_version_id uuid not null,
    scope text not null,
    is_session boolean not null,
    -- Number of the last exchange that was taken or forgotten. It is never taken again.
    taken int not null,
    -- Number of the last exchange that was noted, so that one that begins while others are taken is not overlooked.
    noted int not null,
    created_at timestamptz not null,
    -- Next look at whether it has ended; null while nothing is left to take.
    check_at timestamptz
) with (fillfactor = 70);
create index memory_sources_due on memory_sources (check_at) where check_at is not null;
create index memory_sources_agent on memory_sources (tenant_id, agent_key, id);

-- Executions that take exchanges. Their journals hold copies of them.
create table memory_updates (
    execution_id uuid primary key,
    source_id uuid not null,
    -- True if its texts go when it has ended, because something that it took was forgotten.
    is_void boolean not null default false
);
create index memory_updates_source on memory_updates (source_id);
create index memory_updates_void on memory_updates (execution_id) where is_void;

create table memory_episodes (
    id uuid primary key,
    tenant_id uuid not null,
    agent_key text not null,
    -- Empty if the agent has one memory for all; otherwise the path of the setting and its value.
    scope text not null,
    -- Execution in which it was said, with its session, if it has one.
    execution_id uuid not null,
    session_id uuid,
    -- Key of the call that remembered it; empty for an exchange. So nothing writes it twice.
    call_key bytea not null,
    -- Number of the exchange in its source; 0 for a call.
    exchange int not null,
    -- Execution that wrote it; null once a caller changed it.
    written_by uuid,
    content text not null check (char_length(content) between 1 and 10000),
    -- SHA-256 of the content: precondition of a change.
    hash bytea not null,
    version int not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- Words without a language's rules, as in `index_chunks`.
    words tsvector not null generated always as (to_tsvector('simple', content)) stored,
    -- Model of the embedding. The column `embedding` is added with the extension.
    embedding_model text,
    unique (execution_id, call_key)
);
create index memory_episodes_recent on memory_episodes (tenant_id, agent_key, scope, created_at, exchange);
create index memory_episodes_tenant on memory_episodes (tenant_id, id);
create index memory_episodes_session on memory_episodes (session_id) where session_id is not null;
create index memory_episodes_written on memory_episodes (written_by);
create index memory_episodes_age on memory_episodes (updated_at);
create index memory_episodes_words on memory_episodes using gin (words);

create table memory_entities (
    id uuid primary key,
    tenant_id uuid not null,
    agent_key text not null,
    scope text not null,
    name text not null check (char_length(name) between 1 and 200),
    -- The name in lower case: an entity is known by it.
    name_key text not null,
    kind text not null check (char_length(kind) <= 100),
    words tsvector not null generated always as (to_tsvector('simple', name)) stored,
    unique (tenant_id, agent_key, scope, name_key)
);
create index memory_entities_words on memory_entities using gin (words);

create table memory_relations (
    id uuid primary key,
    subject_id uuid not null references memory_entities on delete cascade,
    object_id uuid not null references memory_entities on delete cascade,
    predicate text not null check (char_length(predicate) between 1 and 200),
    unique (subject_id, predicate, object_id)
);
create index memory_relations_object on memory_relations (object_id);

-- Episodes that an entity and a relation come from. Without one they go.
create table memory_entity_sources (
    episode_id uuid not null references memory_episodes on delete cascade,
    entity_id uuid not null references memory_entities on delete cascade,
    primary key (episode_id, entity_id)
);
create index memory_entity_sources_entity on memory_entity_sources (entity_id);

create table memory_relation_sources (
    episode_id uuid not null references memory_episodes on delete cascade,
    relation_id uuid not null references memory_relations on delete cascade,
    primary key (episode_id, relation_id)
);
create index memory_relation_sources_relation on memory_relation_sources (relation_id);

-- Sessions, and executions outside sessions, whose prompts hold an episode.
create table memory_recalls (
    episode_id uuid not null references memory_episodes on delete cascade,
    record_id uuid not null,
    is_session boolean not null,
    primary key (episode_id, record_id)
);
create index memory_recalls_record on memory_recalls (record_id);

-- An episode that a call writes.
create type memory_note as (
    tenant_id uuid,
    agent_key text,
    scope text,
    session_id uuid,
    call_key bytea,
    content text,
    hash bytea
);
-- An exchange to take.
create type memory_exchange as (execution_id uuid, number int, content text, hash bytea);
-- An entity that a model found; and a relation, with the numbers of the exchanges that say so.
create type memory_entity as (name text, kind text);
create type memory_relation as (subject text, predicate text, object text, exchanges int[]);
