-- Budgets of trees of executions, and what model calls have reserved of them (core-rules 13). Money is in billionths of a US dollar,
-- everywhere and without fractions.

create table budgets (
    root_id uuid primary key,
    tenant_id uuid not null references tenants,
    -- Null: not limited.
    max_cost bigint check (max_cost >= 0),
    max_tokens bigint check (max_tokens >= 0),
    max_calls bigint check (max_calls >= 0),
    on_exhausted text not null check (on_exhausted in ('park', 'fail')),
    -- What settled reservations came to, and what the others hold. A settled reservation counts as reserved until it is folded.
    spent_cost bigint not null default 0,
    spent_tokens bigint not null default 0,
    spent_calls bigint not null default 0,
    reserved_cost bigint not null default 0,
    reserved_tokens bigint not null default 0,
    reserved_calls bigint not null default 0,
    -- Calls among the spent ones whose cost is not known, and calls charged at their estimate because nobody can say what became
    -- of them.
    uncosted_calls bigint not null default 0,
    estimated_calls bigint not null default 0,
    -- Charges above the reservation, which a provider that keeps to the limits it was sent never makes: their excess, and their number.
    over_limit_cost bigint not null default 0,
    over_limit_tokens bigint not null default 0,
    over_limit_calls bigint not null default 0,
    constraint nothing_is_reserved_below_zero check (reserved_cost >= 0 and reserved_tokens >= 0 and reserved_calls >= 0)
) with (fillfactor = 50);

-- One model call of one step, before and after it was made. Asking again for the same step finds the same row.
create table reservations (
    execution_id uuid not null,
    step_key bytea not null check (length(step_key) = 32),
    root_id uuid not null,
    -- waiting: it did not fit. open: it is reserved. settled: it is charged, and deleted when the budget has taken note.
    state text not null check (state in ('waiting', 'open', 'settled')),
    asked_at timestamptz not null,
    -- The lease that may have made the call; null while nobody has taken what was granted.
    lease_token uuid,
    -- The most that the call can take; of a waiting one, the least that it needs. Cost is null where the price is not known.
    cost bigint,
    tokens bigint not null,
    -- The parts of it: the prompt, and a reply of up to reply_tokens at reply_price for a million. Of an open row reply_tokens is the
    -- limit that the call is sent with; of a waiting one, the most that it asks for. A limit below least_reply_tokens is no use.
    prompt_cost bigint,
    prompt_tokens bigint not null default 0,
    reply_price bigint,
    reply_tokens bigint not null default 0,
    least_reply_tokens bigint not null default 0,
    -- What it took.
    charged_cost bigint,
    charged_tokens bigint not null default 0,
    charged_calls int not null default 0,
    is_estimate boolean not null default false,
    primary key (execution_id, step_key)
);
create index reservations_waiting on reservations (root_id, asked_at) where state = 'waiting';
create index reservations_settled on reservations (root_id) where state = 'settled';
