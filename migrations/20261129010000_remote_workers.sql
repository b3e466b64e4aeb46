-- Workers over HTTP (docs/design/remote-workers.md), and signals to executions.

-- Tenant whose key registered the worker: it alone may speak for it. Null for a worker of the installation.
alter table workers add column tenant_id uuid;
create index workers_remote on workers (tenant_id) where tenant_id is not null and dead_at is null;

-- Execution whose model calls a run holds: it is the run of that execution alone, lives no longer, and spends its
-- budget.
alter table runs add column execution_id uuid;
create index runs_execution on runs (execution_id) where execution_id is not null;

-- What callers sent to an execution by name, in the order of `seq`, which is the number of its event. Kept until the
-- execution is pruned: an attempt takes them by their place.
create table signals (
    execution_id uuid not null,
    name text not null check (length(name) between 1 and 200),
    seq int not null,
    -- Exact JSON text.
    payload json not null,
    sent_at timestamptz not null,
    -- Idempotency key of the request.
    sent_key text,
    primary key (execution_id, name, seq)
);
create unique index signals_sent on signals (execution_id, sent_key) where sent_key is not null;
