-- History of executions, partitioned by execution id (UUIDv7) and pruned by dropping partitions (docs/adr/0002-storage.md). Weekly
-- partitions are made by longhaul_ensure_partitions.

-- One row per ended lease.
create table attempts (
    execution_id uuid not null,
    number int not null,
    worker_id uuid not null,
    lease_token uuid not null,
    started_at timestamptz not null,
    ended_at timestamptz not null,
    outcome text not null check (outcome in ('finished', 'failed', 'parked', 'retrying', 'released', 'drained', 'lost', 'cancelled')),
    failure_class text,
    failure_code text,
    failure_summary text,
    wait_reason text,
    primary key (execution_id, number)
) partition by range (execution_id);

-- The journal (worker/src/agent/journal). `body` holds exact bytes, compressed; `preview` is for people.
create table steps (
    execution_id uuid not null,
    seq int not null,
    attempt int not null,
    kind text not null check (kind in ('retrieval', 'prompt', 'turn', 'call', 'verdict', 'correction', 'compression')),
    state text not null check (state in ('intent', 'live', 'spent')),
    -- SHA-256 of what the step is, for look-up by content; `occurrence` counts the spent steps with the same key before it.
    key bytea not null,
    occurrence int not null default 0,
    name text,
    -- Hashes of the messages it appended to the transcript, in order.
    appends bytea[] not null default '{}',
    body bytea not null,
    preview text,
    failure_code text,
    input_tokens int,
    output_tokens int,
    cached_tokens int,
    -- In billionths of a US dollar; null where no price is known.
    cost bigint,
    started_at timestamptz not null,
    finished_at timestamptz,
    primary key (execution_id, seq)
) partition by range (execution_id);

-- Messages of the transcript, once per execution, by the SHA-256 of their exact bytes.
create table messages (
    execution_id uuid not null,
    hash bytea not null,
    body bytea not null,
    primary key (execution_id, hash)
) partition by range (execution_id);

-- What observers see, numbered per execution without gaps.
create table events (
    execution_id uuid not null,
    seq int not null,
    at timestamptz not null,
    kind text not null,
    data jsonb,
    primary key (execution_id, seq)
) partition by range (execution_id);

-- Rows outside of the ranges made ahead. A row in here is an alarm (metric `longhaul_store_default_partition_rows`).
create table attempts_default partition of attempts default;
create table steps_default partition of steps default;
create table messages_default partition of messages default;
create table events_default partition of events default;
