-- The clock, tenants and their keys.

-- One row: what tests add to the clock of this database. Zero in production.
create table clock (
    id boolean primary key default true check (id),
    shift interval not null default '0'
);
insert into clock default values;

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
    -- The first characters, so that people can tell keys apart; the key itself is not stored.
    prefix text not null,
    hash bytea not null unique,
    scopes text[] not null,
    created_at timestamptz not null,
    revoked_at timestamptz,
    -- Sessions of the status page that began before this are over.
    sessions_ended_at timestamptz
);

-- Database functions as `longhaul migrate` last applied them: a file of migrations/functions is applied again when its hash changes.
create table database_functions (
    name text primary key,
    hash bytea not null,
    applied_at timestamptz not null
);
