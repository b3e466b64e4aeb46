-- Executions. `executions` is narrow, hot and not partitioned; inputs, outputs and other bodies have tables of
-- their own, and the history is partitioned (docs/adr/0002-storage.md).

create type execution_status as enum ('PENDING', 'IN_PROGRESS', 'FINISHED', 'FAILED');

create table executions (
    id uuid primary key,
    -- No foreign key: it would lock the tenant's row in every submit. Tenants are never deleted.
    tenant_id uuid not null,
    -- Immutable columns: the request.
    definition_key text not null,
    definition_version_id uuid not null,
    agent_key text not null,
    agent_version_id uuid not null,
    queue text not null,
    serve_key text not null,
    priority smallint not null check (priority between 0 and 9),
    metadata jsonb not null default '{}',
    created_at timestamptz not null,
    deadline_at timestamptz not null,
    active_timeout interval not null,
    retry_of uuid,
    submitted_by uuid,
    -- Place in a tree; null and 0 outside trees. `root_id` is the topmost ancestor. `spawn_key` identifies the
    -- call of the parent that this execution carries out, so that a repeated call finds the same child.
    parent_id uuid,
    root_id uuid,
    depth smallint not null default 0,
    spawn_key bytea,
    -- Execution whose journal a fork continues, and the first step that the fork does not share.
    forked_from uuid,
    forked_before int,
    has_budget boolean not null default false,
    -- Owner of the budget, if that is not the root of the tree: the session.
    budget_id uuid,
    -- Session whose message it answers; null outside sessions.
    session_id uuid,
    -- Mutable columns: the state.
    status execution_status not null default 'PENDING',
    wait_reason text check (wait_reason in ('worker', 'scheduled', 'retry_backoff', 'approval', 'children',
        'concurrency_limit',
        'rate_limit', 'budget', 'provider_down', 'queue_paused', 'input', 'no_worker')),
    wait_until timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    cancel_requested_at timestamptz,
    failure_class text check (failure_class in ('transient', 'tool_error', 'llm_error', 'context_limit', 'permanent',
        'human_rejected')),
    failure_code text,
    -- The lease. `lease_write` numbers the writes made under one token, so that a repeated write is recognised.
    worker_id uuid,
    lease_token uuid,
    lease_write int not null default 0,
    claimed_at timestamptz,
    active_until timestamptz,
    -- Counters. `lane` is the claim lane: 0 normal, 1 suspect, 2 alone (core-rules 5). `wake_seq` counts wakes
    -- (core-rules 3).
    attempt int not null default 0,
    lane smallint not null default 0,
    crash_count smallint not null default 0,
    transient_retries smallint not null default 0,
    tool_error_retries smallint not null default 0,
    llm_error_retries smallint not null default 0,
    wake_seq int not null default 0,
    event_seq int not null default 0,
    turns int not null default 0,
    calls int not null default 0,
    input_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    -- Parts of input_tokens that were read from and written to caches of providers.
    cached_tokens bigint not null default 0,
    cache_write_tokens bigint not null default 0,
    active_time interval not null default '0',
    -- Cost of the recorded model calls in billionths of a US dollar, as far as prices are known.
    cost bigint not null default 0,
    -- Model calls without a known cost: no price is configured, or the provider reported no usage.
    uncosted_turns int not null default 0,
    children int not null default 0,
    open_children int not null default 0,
    -- Keys of concurrency limits whose slots the execution holds, waits for or held last; null if no limit ever
    -- applied. Changes only where `wait_reason` does.
    slot_keys text[],

    constraint pending_waits check (status <> 'PENDING' or (wait_reason is not null and started_at is null)),
    constraint running_is_held_or_waits
        check (status <> 'IN_PROGRESS' or (wait_reason is null) = (worker_id is not null)),
    constraint only_running_is_held check (worker_id is null or (status = 'IN_PROGRESS' and lease_token is not null)),
    constraint started_once check (status not in ('IN_PROGRESS', 'FINISHED') or started_at is not null),
    constraint terminal_is_finished check ((status in ('FINISHED', 'FAILED')) = (finished_at is not null)),
    constraint terminal_waits_for_nothing check (finished_at is null or (wait_reason is null and wait_until is null)),
    constraint failed_has_a_cause
        check ((status = 'FAILED') = (failure_code is not null and failure_class is not null)),
    constraint child_has_a_place check (
        case when parent_id is null then root_id is null and depth = 0 and spawn_key is null
        else root_id is not null and depth > 0 and spawn_key is not null end
    ),
    constraint fork_has_an_origin check ((forked_from is null) = (forked_before is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);

-- Rank of an execution within its tenant: milliseconds at submit, minus five minutes per level of priority; the
-- lowest is first. An index is built on it, so it is part of the table and never changes.
create function longhaul_claim_rank(created_at timestamptz, priority smallint) returns bigint
    language sql immutable parallel safe
    as $$
        select (extract(epoch from created_at - timestamptz '2020-01-01 00:00:00+00') * 1000)::bigint
            - priority * 300000::bigint
    $$;

-- Partial indexes over columns that change (core-rules 16): claimable, held and open executions.
create index executions_turn on executions (
    queue, serve_key, lane, tenant_id, (started_at is null), longhaul_claim_rank(created_at, priority), id
) where wait_reason = 'worker';
create index executions_held on executions (worker_id) where worker_id is not null;
create index executions_open on executions (tenant_id, status, id) where finished_at is null;

-- An execution enters this index once, at its end.
create index executions_failed on executions (tenant_id, failure_code, id) where status = 'FAILED';
-- Indexes on immutable columns.
create index executions_tenant on executions (tenant_id, id);
create index executions_definition on executions (tenant_id, definition_key, id);
create index executions_agent on executions (tenant_id, agent_key, id);
create index executions_metadata on executions using gin (metadata jsonb_path_ops) with (fastupdate = on)
    where metadata <> '{}';
create unique index executions_children on executions (parent_id, spawn_key) where parent_id is not null;
create index executions_tree on executions (root_id, id) where root_id is not null;

-- Input, output and failure texts of an execution. Type `json` keeps the bytes as they were sent.
create table execution_payloads (
    execution_id uuid primary key,
    input json not null,
    output json,
    failure_summary text,
    failure_detail json,
    traceparent text,
    -- System prompt and model of a fork, or the contract's run; null for everything else.
    overrides json,
    -- Time at which its texts were erased, here and in its history (docs/adr/0044-erasure.md).
    erased_at timestamptz
) with (fillfactor = 70);

-- Parked executions by reason: the work list of the sweep. A row exists exactly as long as the execution waits
-- for something other than a worker.
create table parked (
    execution_id uuid primary key,
    tenant_id uuid not null,
    wait_reason text not null,
    wait_until timestamptz not null
);
create index parked_due on parked (wait_until);
create index parked_reason on parked (tenant_id, wait_reason, execution_id);
-- Work list of the sweep for executions held back by quarantine.
create index parked_held on parked (execution_id) where wait_reason = 'queue_paused';

-- Deadlines earlier than the default, so that the sweep enforces them without scanning the backlog.
create table deadlines (
    execution_id uuid primary key,
    deadline_at timestamptz not null
);
create index deadlines_due on deadlines (deadline_at);

-- Executions that ended or are to be cancelled, and may have open children: the work list of the sweep that
-- cancels the children.
create table ending_parents (
    execution_id uuid primary key
);

-- Idempotency keys of submits. `request_hash` tells a repeated request from another one with the same key.
create table idempotency_keys (
    tenant_id uuid not null,
    key text not null,
    execution_id uuid not null,
    request_hash bytea not null,
    created_at timestamptz not null,
    primary key (tenant_id, key)
);
create index idempotency_keys_age on idempotency_keys using brin (created_at);

-- Numbers of executions by status. Writers append differences to `execution_count_changes`, one row per group and
-- batch; the sweep folds them into `execution_counts`.
create table execution_counts (
    tenant_id uuid not null,
    definition_key text not null,
    agent_key text not null,
    day date not null,
    status execution_status not null,
    n bigint not null,
    primary key (tenant_id, definition_key, agent_key, day, status)
) with (fillfactor = 70);

create table execution_count_changes (
    tenant_id uuid not null,
    definition_key text not null,
    agent_key text not null,
    day date not null,
    status execution_status not null,
    n bigint not null
);

-- An execution as it is submitted, before the database adds times and state. Its input and overrides are exact JSON
-- texts; a child takes its tenant, queue, priority and submitter from its parent.
create type submission as (
    id uuid,
    tenant_id uuid,
    definition_key text,
    definition_version_id uuid,
    agent_key text,
    agent_version_id uuid,
    queue text,
    serve_key text,
    priority smallint,
    metadata jsonb,
    input text,
    overrides text,
    run_at timestamptz,
    deadline_seconds float8,
    deadline_is_near boolean,
    active_timeout_seconds float8,
    submitted_by uuid,
    traceparent text,
    idempotency_key text,
    request_hash bytea,
    on_exhausted text,
    max_cost bigint,
    max_tokens bigint,
    max_calls bigint
);

-- Result of `longhaul_admit` for one execution.
create type admission as (execution_id uuid, keys text[], is_admitted boolean);

-- Row types of a claim (`longhaul_claim`).

-- A tenant claimed from lately, and where the scan of its executions starts: after this rank and id.
create type claim_line as (queue text, serve_key text, tenant_id uuid, after_rank bigint, after_id uuid);

-- A range of tenant ids in which other tenants with work are looked for; its ends are excluded.
create type claim_gap as (queue text, serve_key text, above uuid, below uuid);

-- A lane of suspects, with its room over all queues and serve keys.
create type claim_lane as (queue text, serve_key text, lane smallint, room int);

-- Recent usage of a tenant, in tokens.
create type tenant_use as (tenant_id uuid, tokens float8);

-- The executions that a claim examines: at most `candidates`, of one tenant at most `per_tenant`. `usual` is the
-- usage of one execution.
create type claim_scan as (
    candidates int,
    per_tenant int,
    lines claim_line[],
    gaps claim_gap[],
    suspects claim_lane[],
    usage tenant_use[],
    usual float8
);
