-- Budgets of execution trees and of sessions (`root_id` is then the session's id), and the reservations of model calls
-- (core-rules 13). Money is a whole number of billionths of a US dollar.

create table budgets (
    root_id uuid primary key,
    tenant_id uuid not null references tenants,
    -- Caps; null is unlimited.
    max_cost bigint check (max_cost >= 0),
    max_tokens bigint check (max_tokens >= 0),
    max_calls bigint check (max_calls >= 0),
    on_exhausted text not null check (on_exhausted in ('park', 'fail')),
    -- Sums of the settled reservations, and of the others. A settled reservation counts as reserved until it is
    -- folded.
    spent_cost bigint not null default 0,
    spent_tokens bigint not null default 0,
    spent_calls bigint not null default 0,
    reserved_cost bigint not null default 0,
    reserved_tokens bigint not null default 0,
    reserved_calls bigint not null default 0,
    -- Spent calls whose cost is unknown, and spent calls charged at their estimate because their outcome is
    -- unknown.
    uncosted_calls bigint not null default 0,
    estimated_calls bigint not null default 0,
    -- Charges above the reservation: their excess, and their number. A provider that keeps to the limits it was
    -- sent causes none.
    over_limit_cost bigint not null default 0,
    over_limit_tokens bigint not null default 0,
    over_limit_calls bigint not null default 0,
    constraint nothing_is_reserved_below_zero check (reserved_cost >= 0 and reserved_tokens >= 0
        and reserved_calls >= 0)
) with (fillfactor = 50);

-- Reservation for the model call of one step. A repeated request for the same step finds the same row.
create table reservations (
    execution_id uuid not null,
    step_key bytea not null check (length(step_key) = 32),
    root_id uuid not null,
    -- waiting: it does not fit the budget. open: reserved. settled: charged, and deleted when the budget is
    -- folded.
    state text not null check (state in ('waiting', 'open', 'settled')),
    asked_at timestamptz not null,
    -- Lease that may have made the call; null until an attempt takes the granted reservation.
    lease_token uuid,
    -- Most that the call can take; for a waiting row, the least it needs. `cost` is null where no price is known.
    cost bigint,
    tokens bigint not null,
    -- Parts of that amount: the prompt, and a reply of up to `reply_tokens` at `reply_price` per million tokens.
    -- For an open row `reply_tokens` is the limit sent with the call; for a waiting row, the most it asks for. A
    -- limit below `least_reply_tokens` is of no use.
    prompt_cost bigint,
    prompt_tokens bigint not null default 0,
    reply_price bigint,
    reply_tokens bigint not null default 0,
    least_reply_tokens bigint not null default 0,
    -- Amounts charged.
    charged_cost bigint,
    charged_tokens bigint not null default 0,
    charged_calls int not null default 0,
    is_estimate boolean not null default false,
    primary key (execution_id, step_key)
);
create index reservations_waiting on reservations (root_id, asked_at) where state = 'waiting';
create index reservations_settled on reservations (root_id) where state = 'settled';

-- A model call for which budget is reserved, under the lease of its attempt. `prompt_cost` is null if the model has no
-- price; `may_wait` is false where the caller can first count the prompt more closely.
create type call_reservation as (
    id uuid,
    token uuid,
    step_key bytea,
    prompt_cost bigint,
    prompt bigint,
    reply_price bigint,
    reply bigint,
    least_reply bigint,
    may_wait boolean
);
