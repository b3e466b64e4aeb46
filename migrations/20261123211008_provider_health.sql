-- Health of model endpoints, shared by the fleet: circuit breakers, waiting executions, limits
-- (docs/adr/0012-provider-health.md).

-- One row per endpoint that ever failed: a provider, a model and the fingerprint of a key. An endpoint without a
-- row has a closed breaker.
create table provider_breakers (
    provider text not null,
    model text not null,
    -- Fingerprint of the address and the API key. The key itself is not stored.
    key text not null,
    -- open: one probe at a time may call, once `open_until` has passed. recovering: a probe was answered, and
    -- waiting executions are released in growing portions.
    state text not null default 'closed' check (state in ('closed', 'open', 'recovering')),
    cause text check (cause in ('outage', 'quota', 'operator')),
    failure_code text,
    since timestamptz,
    open_until timestamptz,
    -- True if the provider stated a time.
    is_stated boolean not null default false,
    failed_probes int not null default 0,
    probes bigint not null default 0,
    -- Execution that may probe: until `probe_until`, and as long as it runs under the lease `probe_token`.
    probe_execution uuid,
    probe_token uuid,
    probe_until timestamptz,
    -- State of the current portion: its size, the executions released, those answered, and the time of the last
    -- change. The rest of a portion is released in later transactions, each of bounded size.
    portion int not null default 0,
    released int not null default 0,
    answered int not null default 0,
    portion_at timestamptz,
    -- Position of the execution released last: the next scan of the line starts behind it. Null: at the head.
    cursor_priority smallint,
    cursor_id uuid,
    -- Limit on concurrent calls since the endpoint reported too many, and the limit it may grow to; null: not
    -- limited.
    concurrency int check (concurrency >= 1),
    concurrency_most int,
    concurrency_at timestamptz,
    -- Time stated by the endpoint before which no call is admitted.
    closed_until timestamptz,
    primary key (provider, model, key)
) with (fillfactor = 50);

-- Failures of the last seconds, and failures whose retries are to be refunded because a breaker opened over them
-- (`is_owed`).
create table provider_failures (
    execution_id uuid not null,
    lease_token uuid not null,
    provider text not null,
    model text not null,
    key text not null,
    class text not null,
    at timestamptz not null,
    is_owed boolean not null default false,
    primary key (execution_id, lease_token)
);
create index provider_failures_of on provider_failures (provider, model, key, at);

-- Executions that wait for an endpoint, or were told by it to come back later. A row lives until its call was
-- answered, so that the wait is bounded however often it is resumed.
create table provider_waits (
    execution_id uuid primary key,
    provider text not null,
    model text not null,
    key text not null,
    reason text not null check (reason in ('provider_down', 'rate_limit')),
    priority smallint not null,
    since timestamptz not null,
    give_up_at timestamptz not null,
    -- Time of the slot reserved in a rate limit.
    pass_at timestamptz,
    is_released boolean not null default false,
    -- Number of times it was the probe. The least often chosen is next: one that always fails must not keep the
    -- breaker open.
    probed int not null default 0,
    -- True if the breaker released it and no call of it has been answered since. A rate limit may still hold it
    -- back.
    is_let_go boolean not null default false,
    -- Call that waits; another call starts a new wait. Null where its executor did not state it.
    call bigint,
    -- Consecutive 429 answers to this call, and the last of them.
    throttles int not null default 0,
    throttle_id uuid
);
create index provider_waits_let_go on provider_waits (provider, model, key) where is_let_go;
create index provider_waits_line on provider_waits (provider, model, key, reason, priority desc, execution_id)
    where not is_released;
-- One entry per execution that waits for a call to a full endpoint to end. Every worker looks once a second for the
-- endpoints that have such a line, in steps from one endpoint to the next.
create index provider_waits_full on provider_waits (provider, model, key)
    where reason = 'rate_limit' and pass_at is null and not is_released;

-- GCRA state of rate limits while Redis is down: theoretical arrival times of the next request and the next
-- token.
create table provider_rates (
    provider text not null,
    model text not null,
    key text not null,
    requests_at timestamptz not null,
    tokens_at timestamptz not null,
    primary key (provider, model, key)
) with (fillfactor = 50);

-- Row types of the functions on endpoints.

-- An attempt that asks for a model call. `call` identifies the call within its execution; its repetitions have the
-- same.
create type asking_attempt as (worker uuid, execution uuid, token uuid, call bigint);

-- A call that failed. `stated` is the wait that the endpoint asked for, `patience` the longest wait of the execution
-- for this endpoint, both in seconds.
create type failed_call as (
    attempt asking_attempt,
    class text,
    code text,
    is_quota boolean,
    stated float8,
    patience float8
);

-- A call that was answered with 429. `throttle_id` identifies the answer.
create type throttled_call as (attempt asking_attempt, throttle_id uuid, patience float8);
