-- Executions that another engine runs: whose they are here, so that a tenant reads its own alone. A row is forgotten after 30 days, by
-- the inserts that come after it.
create table forwarded_executions (
    id text primary key,
    tenant_id uuid not null references tenants,
    created_at timestamptz not null
);
create index forwarded_executions_age on forwarded_executions (created_at);
