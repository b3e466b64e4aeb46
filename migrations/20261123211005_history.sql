-- History of executions, partitioned by execution id (UUIDv7) and pruned by dropping partitions
-- (docs/adr/0002-storage.md). `longhaul_make_partition` makes weekly partitions.

-- One row per ended lease.
create table attempts (
    execution_id uuid not null,
    number int not null,
    worker_id uuid not null,
    lease_token uuid not null,
    started_at timestamptz not null,
    ended_at timestamptz not null,
    outcome text not null check (outcome in ('finished', 'failed', 'parked', 'retrying', 'released', 'drained', 'lost',
        'cancelled')),
    failure_class text,
    failure_code text,
    failure_summary text,
    wait_reason text,
    primary key (execution_id, number)
) partition by range (execution_id);

-- The journal (agent/src/journal). `body` holds exact bytes, compressed; `preview` is text for people.
create table steps (
    execution_id uuid not null,
    seq int not null,
    attempt int not null,
    -- An `aggregation` is a model's judgement or synthesis of the outputs of children.
    kind text not null check (kind in (
        'retrieval', 'prompt', 'turn', 'call', 'verdict', 'correction', 'compression', 'aggregation'
    )),
    state text not null check (state in ('intent', 'live', 'spent')),
    -- SHA-256 of the step's content, for look-up. `occurrence` is the number of earlier spent steps with the same
    -- key.
    key bytea not null,
    occurrence int not null default 0,
    name text,
    -- The messages it appended to the transcript, in order: exact bytes, compressed.
    appends bytea[] not null default '{}',
    body bytea not null,
    preview text,
    failure_code text,
    input_tokens int,
    output_tokens int,
    cached_tokens int,
    cache_write_tokens int,
    -- Cost in billionths of a US dollar; null where no price is known.
    cost bigint,
    started_at timestamptz not null,
    finished_at timestamptz,
    primary key (execution_id, seq)
) partition by range (execution_id);

-- Events for observers, numbered per execution without gaps.
create table events (
    execution_id uuid not null,
    seq int not null,
    at timestamptz not null,
    kind text not null,
    data jsonb,
    primary key (execution_id, seq)
) partition by range (execution_id);

-- Default partitions, for ids outside the ranges made ahead. A row in one is an alarm (metric
-- `longhaul_store_default_partition_rows`).
create table attempts_default partition of attempts default;
create table steps_default partition of steps default;
create table events_default partition of events default;

-- Row types of the writes of workers: a statement takes arrays of these, with named columns on both sides.

-- One entry of the journal. `took_ms` is the time from its start to its end.
create type journal_step as (
    execution_id uuid,
    seq int,
    kind text,
    state text,
    key bytea,
    occurrence int,
    name text,
    appends bytea[],
    body bytea,
    preview text,
    failure_code text,
    input_tokens int,
    output_tokens int,
    cached_tokens int,
    cache_write_tokens int,
    cost bigint,
    took_ms float8
);

-- `number` counts the events of one write, from 1.
create type journal_event as (execution_id uuid, number int, kind text, data jsonb);

-- The result of a model call that was reserved in a budget.
create type journal_settlement as (
    execution_id uuid,
    step_key bytea,
    cost bigint,
    tokens bigint,
    calls int,
    is_estimate boolean
);

-- A write under a lease: its number, and what it adds to the counters of its execution.
create type journal_write as (
    execution_id uuid,
    token uuid,
    write int,
    events int,
    turns int,
    calls int,
    input_tokens bigint,
    output_tokens bigint,
    cached_tokens bigint,
    cache_write_tokens bigint,
    cost bigint,
    uncosted_turns int,
    is_progress boolean
);

-- The end of a lease, with the last write under it, if there is one.
create type lease_end as (
    execution_id uuid,
    token uuid,
    verb text,
    outcome text,
    output text,
    failure_class text,
    failure_code text,
    failure_summary text,
    failure_detail text,
    wait_reason text,
    wait_seconds float8,
    wake_seq int,
    write journal_write
);
