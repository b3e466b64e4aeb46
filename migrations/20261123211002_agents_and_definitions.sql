-- Agents and definitions as immutable versions, and the requirements they put on a worker.

-- `tenant_id` is null for a version shared by all tenants (applied by an operator, or published by a worker).
create table agent_versions (
    id uuid primary key,
    tenant_id uuid references tenants,
    key text not null,
    version int not null check (version > 0),
    -- SHA-256 of the exact bytes of `spec`. Putting the same content again makes no new version.
    spec_hash bytea not null,
    spec json not null,
    created_at timestamptz not null,
    removed_at timestamptz
);
create unique index agent_versions_key on agent_versions (key, tenant_id, version) nulls not distinct;

-- Versions of definitions; `tenant_id` and `spec_hash` as in `agent_versions`.
create table definition_versions (
    id uuid primary key,
    tenant_id uuid references tenants,
    key text not null,
    version int not null check (version > 0),
    agent_key text not null,
    spec_hash bytea not null,
    spec json not null,
    created_at timestamptz not null,
    removed_at timestamptz
);
create unique index definition_versions_key on definition_versions (key, tenant_id, version) nulls not distinct;

-- Requirements of executions on a worker: the names of the Rust definitions, tools and validators it must
-- register. The key is '' where every worker qualifies. Executions carry the key; workers publish the keys they
-- satisfy.
create table serve_keys (
    key text primary key,
    requirements text[] not null,
    -- Time of the last submit with this key, accurate to an hour.
    put_at timestamptz not null default clock_timestamp()
);
