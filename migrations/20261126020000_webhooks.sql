-- Webhooks (docs/adr/0056-webhooks.md): endpoints of tenants, and the outbox of what they are told.

create table webhook_endpoints (
    id uuid primary key,
    tenant_id uuid not null,
    url text not null,
    description text,
    -- Types of events that it is told.
    types text[] not null,
    created_at timestamptz not null,
    -- Number of its secret, which is derived from the key pepper, and the time until which the secret before signs as
    -- well.
    secret_number int not null default 1,
    old_secret_until timestamptz,
    disabled_at timestamptz,
    -- caller: switched off by a request. failures: nothing was delivered for too long. gone: it answered 410.
    disabled_because text check (disabled_because in ('caller', 'failures', 'gone')),
    -- State of the lane: time of its first failure since the last success, failures since then, and the time until
    -- which it is closed.
    failing_since timestamptz,
    failures int not null default 0,
    closed_until timestamptz,
    delivered_at timestamptz,
    -- The process that delivers, and the time until which no other does.
    lane_token uuid,
    lane_until timestamptz,
    check ((disabled_at is null) = (disabled_because is null))
) with (fillfactor = 50);
create index webhook_endpoints_tenant on webhook_endpoints (tenant_id, id);

-- One row for each event and endpoint, written by the statement of the transition that it tells of.
create table webhook_deliveries (
    -- UUIDv7; the header `webhook-id`.
    id uuid primary key,
    endpoint_id uuid not null references webhook_endpoints on delete cascade,
    type text not null,
    execution_id uuid,
    -- The approval, question or call that waits for an answer.
    request_id uuid,
    occurred_at timestamptz not null,
    attempts int not null default 0,
    -- Next attempt; null once it was delivered or given up.
    next_at timestamptz,
    -- End of the attempts.
    expires_at timestamptz not null,
    delivered_at timestamptz,
    attempted_at timestamptz,
    -- Answer to the last attempt, or why there was none.
    status int,
    error text
) with (fillfactor = 70);
create index webhook_deliveries_due on webhook_deliveries (endpoint_id, next_at) where next_at is not null;
create index webhook_deliveries_endpoint on webhook_deliveries (endpoint_id, id);

comment on table webhook_endpoints is 'Endpoints of tenants that are told of ends and requests.';
comment on table webhook_deliveries is 'What endpoints are told, and how it went.';
