-- Durable runs: model calls of a script outside, recorded so that a script that is started again pays only for what was
-- not answered (docs/design/runs.md). And what the wires of other clients keep beside their executions.

-- A run. Its budget is a row of `budgets` with its id.
create table runs (
    id uuid primary key,
    tenant_id uuid not null,
    -- Name that its caller gave it.
    key text not null check (length(key) between 1 and 200),
    status text not null default 'open' check (status in ('open', 'finished', 'failed', 'cancelled')),
    created_at timestamptz not null,
    -- Start of the time that ends with the deadline: its creation, or the last time it was reopened.
    opened_at timestamptz not null,
    deadline_at timestamptz not null,
    ended_at timestamptz,
    -- Reason for a failure.
    note text,
    made_by uuid,
    -- Rows of `run_calls` made so far, attempts that asked, and rows of `run_attempts`.
    calls int not null default 0,
    attempts int not null default 0,
    positions int not null default 0,
    constraint ended_has_a_time check ((status = 'open') = (ended_at is null)),
    constraint runs_key unique (tenant_id, key)
) with (fillfactor = 50);
create index runs_tenant on runs (tenant_id, id);
create index runs_status on runs (tenant_id, status, id);
create index runs_overdue on runs (deadline_at) where status = 'open';
create index runs_ended on runs (ended_at, id) where ended_at is not null;

-- A recorded call: the execution that answers this occurrence of a content. An execution that was pruned leaves the
-- row; the call is then made anew.
create table run_calls (
    run_id uuid not null references runs on delete cascade,
    -- SHA-256 of the request, or of the name of its step.
    content bytea not null check (length(content) = 32),
    occurrence int not null check (occurrence >= 1),
    -- In the order in which the calls were first made.
    id uuid not null,
    step text,
    execution_id uuid not null,
    made_at timestamptz not null,
    -- Attempts that were handed this execution and had not started it.
    hits int not null default 0,
    -- Executions of the call, with those that failed and were replaced; and what the latter cost, in billionths of a
    -- US dollar.
    tries int not null default 1,
    replaced_cost bigint not null default 0,
    replaced_tokens bigint not null default 0,
    primary key (run_id, content, occurrence)
) with (fillfactor = 70);
create unique index run_calls_order on run_calls (run_id, id);

-- The occurrence of each content that an attempt of the run has reached.
create table run_attempts (
    run_id uuid not null references runs on delete cascade,
    -- Name that its process gave itself.
    attempt text not null check (length(attempt) between 1 and 100),
    content bytea not null check (length(content) = 32),
    occurrence int not null check (occurrence >= 1),
    -- True if the answer was delivered to its last byte: the next request asks for the next occurrence.
    is_delivered boolean not null default false,
    primary key (run_id, attempt, content)
) with (fillfactor = 70);

-- A request for a call of a run.
create type run_request as (
    run_id uuid,
    tenant_id uuid,
    attempt text,
    content bytea,
    step text,
    is_retry boolean
);

-- Requests that continued the answer of an execution over a wire, numbered from 1. The request that began it is with
-- the execution's overrides.
create table wire_legs (
    execution_id uuid not null,
    leg int not null check (leg >= 1),
    -- Exact JSON text.
    request json not null,
    -- Number of the execution's last event when the leg began.
    after_seq int not null,
    created_at timestamptz not null,
    primary key (execution_id, leg)
);

-- Executions whose caller asked not to store them: they are erased when their time is over and they have ended.
create table unstored (
    execution_id uuid primary key,
    keep_until timestamptz not null
) with (fillfactor = 70);
create index unstored_due on unstored (keep_until);
