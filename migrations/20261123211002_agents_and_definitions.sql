-- Agents and definitions as immutable versions, and what they require of a worker.

-- `tenant_id` null: shared by all tenants (applied by an operator, or published by a worker).
create table agent_versions (
    id uuid primary key,
    tenant_id uuid references tenants,
    key text not null,
    version int not null check (version > 0),
    -- SHA-256 over the exact bytes of `spec`; putting the same content again is the same version.
    spec_hash bytea not null,
    spec json not null,
    created_at timestamptz not null,
    removed_at timestamptz
);
create unique index agent_versions_key on agent_versions (key, tenant_id, version) nulls not distinct;

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

-- What a worker must have to run an execution: '' for what every worker has, else the names of Rust definitions, tools and
-- validators it must register. Executions carry the key; workers publish the keys they satisfy.
create table serve_keys (
    key text primary key,
    requirements text[] not null,
    -- The last submit with it, give or take an hour.
    put_at timestamptz not null default clock_timestamp()
);
