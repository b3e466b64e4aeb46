-- Changes over the API: by which key, to what, with which outcome (docs/adr/0060-audit-log.md). No bodies.
create table audit_log (
    -- UUIDv7 of `at`.
    id uuid primary key,
    at timestamptz not null,
    -- Tenant of the actor, which may be another than that of the target.
    tenant_id uuid not null,
    actor_kind text not null check (actor_kind in ('key', 'person')),
    actor_id uuid not null,
    -- As it was then: the key may be renamed or deleted.
    actor_name text not null,
    method text not null,
    -- Template of the path.
    route text not null,
    -- Parameters of the path, or the id of what was created.
    target text,
    -- Status of the answer; null if the caller left before it.
    status int,
    request_id text not null
);
create index audit_log_tenant on audit_log (tenant_id, id);
create index audit_log_actor on audit_log (actor_id, id);
create index audit_log_target on audit_log (tenant_id, target, id);

comment on table audit_log is 'Changes over the API: by which key, to what, with which outcome.';
