-- Database clock, tenants, API keys and the register of database functions.

-- One row. `shift` is added to the database's clock: tests set it, in production it is zero.
create table clock (
    id boolean primary key default true check (id),
    shift interval not null default '0'
);
insert into clock default values;

-- A tenant is an organisation (`group_id` is '') or one group of it.
create table tenants (
    id uuid primary key,
    org_id text not null check (org_id <> ''),
    group_id text not null default '',
    created_at timestamptz not null,
    unique (org_id, group_id)
);

create table api_keys (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    name text not null,
    -- First characters of the key, by which people recognise it. The key itself is not stored.
    prefix text not null,
    hash bytea not null unique,
    scopes text[] not null,
    created_at timestamptz not null,
    revoked_at timestamptz,
    -- Sessions of the status page that began before this time are invalid.
    sessions_ended_at timestamptz
);

-- Database functions as last applied by `longhaul migrate`: a file of migrations/functions is applied again when
-- its hash changes.
create table database_functions (
    name text primary key,
    hash bytea not null,
    applied_at timestamptz not null
);
