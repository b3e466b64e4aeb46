-- Health of model endpoints for the whole fleet: breakers, waiters, limits (docs/adr/0012-provider-health.md).

-- One row per endpoint that ever failed: a provider, a model and the fingerprint of a key. No row is a closed breaker.
create table provider_breakers (
    provider text not null,
    model text not null,
    -- Fingerprint of the address and the key; the key itself is nowhere.
    key text not null,
    -- open: nobody asks but one probe at a time, once `open_until` has passed. recovering: a probe was answered, and those that
    -- wait are let go in growing portions.
    state text not null default 'closed' check (state in ('closed', 'open', 'recovering')),
    cause text check (cause in ('outage', 'quota', 'operator')),
    failure_code text,
    since timestamptz,
    open_until timestamptz,
    -- The provider itself said until when.
    is_stated boolean not null default false,
    failed_probes int not null default 0,
    probes bigint not null default 0,
    -- The execution that may probe: until `probe_until`, and as long as it asks under this lease.
    probe_execution uuid,
    probe_token uuid,
    probe_until timestamptz,
    -- Of the portion under way: its size, how many of it were let go, how many answered, and when that last changed. Those
    -- that are still owed follow in later transactions, each of a bounded number.
    portion int not null default 0,
    released int not null default 0,
    answered int not null default 0,
    portion_at timestamptz,
    -- Who was let go last: the next look at the line begins behind it. Null: at the head.
    cursor_priority smallint,
    cursor_id uuid,
    -- Calls at a time since the endpoint said that there were too many; null: not limited.
    concurrency int check (concurrency >= 1),
    concurrency_most int,
    concurrency_at timestamptz,
    -- The endpoint said when it takes calls again: none is admitted before.
    closed_until timestamptz,
    primary key (provider, model, key)
) with (fillfactor = 50);

-- Failures of the last seconds, and those that are owed back because a breaker opened over them.
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

-- Who waits for an endpoint, and who was told by it to come back later. The row lives until its call was answered, so that the
-- wait is bounded however often it is resumed.
create table provider_waits (
    execution_id uuid primary key,
    provider text not null,
    model text not null,
    key text not null,
    reason text not null check (reason in ('provider_down', 'rate_limit')),
    priority smallint not null,
    since timestamptz not null,
    give_up_at timestamptz not null,
    -- When its reserved place in a rate comes.
    pass_at timestamptz,
    is_released boolean not null default false,
    -- How often it was the probe. Another is asked first: one that always fails must not keep the breaker open.
    probed int not null default 0,
    -- The breaker released it and no call of it has been answered since. A rate limit may still hold it back.
    is_let_go boolean not null default false,
    -- The call that waits: another one's wait begins anew. Null where its executor did not say.
    call bigint,
    -- 429s in a row that this call was answered, and the last of them.
    throttles int not null default 0,
    throttle_id uuid
);
create index provider_waits_let_go on provider_waits (provider, model, key) where is_let_go;
create index provider_waits_line on provider_waits (provider, model, key, reason, priority desc, execution_id) where not is_released;
-- One entry per execution that waits for a call to a full endpoint to end. Every worker looks once a second for the endpoints
-- that have such a line, in steps from one endpoint to the next.
create index provider_waits_full on provider_waits (provider, model, key)
    where reason = 'rate_limit' and pass_at is null and not is_released;

-- Rates where Redis is away: when the next request, and the next token, would be on time.
create table provider_rates (
    provider text not null,
    model text not null,
    key text not null,
    requests_at timestamptz not null,
    tokens_at timestamptz not null,
    primary key (provider, model, key)
) with (fillfactor = 50);
