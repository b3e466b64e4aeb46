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
    cost bigint,
    took_ms float8
);

create type journal_message as (execution_id uuid, hash bytea, body bytea);

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
