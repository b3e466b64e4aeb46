-- Workspaces: the files of the built-in tools, of a session or of an execution outside of one
-- (docs/adr/0048-workspaces.md).

create table workspaces (
    -- Id of the session, or of the execution.
    id uuid primary key,
    tenant_id uuid not null,
    session_id uuid references sessions on delete cascade,
    execution_id uuid,
    -- Number of the last change.
    version int not null,
    -- Oldest version that the entries can still show.
    oldest int not null,
    changed_at timestamptz not null,
    check ((session_id is null) <> (execution_id is null))
) with (fillfactor = 70);
create index workspaces_execution on workspaces (execution_id) where execution_id is not null;
create index workspaces_session on workspaces (session_id) where session_id is not null;

-- A file, symbolic link or empty directory at a path, from one version on until another. Those without an end are the
-- workspace as it is.
create table workspace_entries (
    workspace_id uuid not null references workspaces on delete cascade,
    path text not null,
    since int not null,
    until int,
    tenant_id uuid not null,
    kind text not null check (kind in ('file', 'link', 'directory')),
    -- Body of a file.
    hash bytea,
    bytes bigint not null,
    is_executable boolean not null,
    -- Target of a link.
    target text,
    primary key (workspace_id, path, since),
    check ((kind = 'file') = (hash is not null)),
    check ((kind = 'link') = (target is not null)),
    foreign key (tenant_id, hash) references file_bodies
) with (fillfactor = 70);
create index workspace_entries_body on workspace_entries (tenant_id, hash) where hash is not null;

-- One row per call that changed the workspace: its version, and its result until the call's step is certain to have it.
create table workspace_changes (
    workspace_id uuid not null references workspaces on delete cascade,
    version int not null,
    execution_id uuid not null,
    -- Key of the call's step.
    call_key bytea not null,
    -- Key that only a repetition of the call has.
    repeat_key text not null,
    is_error boolean not null,
    result text,
    primary key (workspace_id, version)
);

-- A change as its statement takes it: the version that it was made from, and the paths whose entries end.
create type workspace_change as (
    call_key bytea,
    repeat_key text,
    from_version int,
    ended text[],
    is_error boolean,
    result text
);
-- An entry to add; columns as in `workspace_entries`.
create type workspace_node as (path text, kind text, hash bytea, bytes bigint, is_executable boolean, target text);
create unique index workspace_changes_repeat on workspace_changes (workspace_id, repeat_key);
create index workspace_changes_execution on workspace_changes (execution_id);
