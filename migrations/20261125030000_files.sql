-- Files of tenants: what callers upload and what executions leave (docs/adr/0046-files.md). The bytes are stored once
-- per tenant and hash, while anything names them.

create table file_bodies (
    tenant_id uuid not null,
    -- SHA-256.
    hash bytea not null check (octet_length(hash) = 32),
    bytes bigint not null,
    -- The bytes, or the key of the object that holds them.
    body bytea,
    object_key text,
    created_at timestamptz not null,
    -- Time from which on the sweep looks if anything names the body; null while something does.
    check_at timestamptz,
    primary key (tenant_id, hash),
    check ((body is null) <> (object_key is null))
) with (fillfactor = 90);
-- Images and PDF are compressed already.
alter table file_bodies alter column body set storage external;
create index file_bodies_check on file_bodies (check_at) where check_at is not null;

-- Bytes of a tenant's bodies, for its quota.
create table file_usage (
    tenant_id uuid primary key,
    bytes bigint not null
) with (fillfactor = 50);

-- Objects that hold no body: those whose body is gone, and those that are being written.
create table file_leftovers (
    object_key text primary key,
    due_at timestamptz not null
);
create index file_leftovers_due on file_leftovers (due_at);

-- Uploads, until they expire. What names a file in a message keeps its body longer.
create table files (
    id uuid primary key,
    tenant_id uuid not null,
    hash bytea not null,
    media_type text not null,
    name text,
    bytes bigint not null,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    foreign key (tenant_id, hash) references file_bodies
);
-- The same bytes under the same name are the same file.
create unique index files_content on files (tenant_id, hash, media_type, coalesce(name, ''));
create index files_expiry on files (expires_at);

-- Files of an execution: those that its caller attached, and those that it left.
create table execution_files (
    execution_id uuid not null,
    id uuid not null,
    kind text not null check (kind in ('input', 'artifact')),
    tenant_id uuid not null,
    hash bytea not null,
    media_type text not null,
    name text,
    bytes bigint not null,
    -- Key of the call that left it; null for an input.
    call_key bytea,
    created_at timestamptz not null,
    primary key (execution_id, id),
    check ((kind = 'artifact') = (call_key is not null)),
    foreign key (tenant_id, hash) references file_bodies
);
create index execution_files_body on execution_files (tenant_id, hash);

-- Bodies that the transcript of a session names: a session outlives its executions.
create table session_files (
    session_id uuid not null references sessions on delete cascade,
    tenant_id uuid not null,
    hash bytea not null,
    primary key (session_id, hash),
    foreign key (tenant_id, hash) references file_bodies
);
create index session_files_body on session_files (tenant_id, hash);

-- A file that a call left, whose body is stored.
create type artifact as (id uuid, hash bytea, media_type text, name text, bytes bigint);
