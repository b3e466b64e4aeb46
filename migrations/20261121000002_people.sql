-- What an execution wants of a person: to allow one of its calls (an approval), or to answer one (a question).

-- A UUIDv7 of the database's clock.
create function longhaul_uuid() returns uuid
    language sql volatile parallel safe
    -- A random id with the milliseconds in its first six bytes; setting two bits makes version 4 a version 7.
    as $$
        select encode(set_bit(set_bit(overlay(
            uuid_send(gen_random_uuid())
            placing substring(int8send((extract(epoch from longhaul_now()) * 1000)::bigint) from 3)
            from 1 for 6
        ), 52, 1), 53, 1), 'hex')::uuid
    $$;

create table human_requests (
    id uuid primary key default longhaul_uuid(),
    execution_id uuid not null,
    tenant_id uuid not null references tenants,
    agent_key text not null,
    kind text not null check (kind in ('approval', 'question')),
    -- The key of the call's step, and how often the call was replaced before: asking again after a crash finds the same row.
    call_key bytea not null check (length(call_key) = 32),
    round int not null,
    tool text not null,
    -- The resolved arguments: exact bytes, compressed, and what people are shown of them, cut. Of a question its text is shown.
    arguments bytea not null,
    shown text not null,
    -- SHA-256 over tool and arguments. A decision names it: nothing else than what its maker saw is ever run.
    hash bytea not null check (length(hash) = 32),
    -- What edited arguments, or the answer, must satisfy.
    schema json,
    -- The rule that asks for the approval.
    policy text,
    -- Whether the key that submitted the execution may decide.
    allow_self boolean not null,
    requested_at timestamptz not null,
    expires_at timestamptz not null,
    state text not null default 'waiting'
        check (state in ('waiting', 'approved', 'edited', 'replaced', 'rejected', 'answered', 'expired', 'closed')),
    decided_at timestamptz,
    -- By which key, and in whose name as far as the caller said so.
    decided_key_id uuid,
    decided_key_name text,
    decided_by text,
    reason text,
    -- What replaces the call (tool and arguments), the edited arguments, or the answer: exact bytes, compressed.
    decision_tool text,
    decision_body bytea,

    unique (execution_id, call_key, kind, round),
    constraint decided_once check ((state = 'waiting') = (decided_at is null)),
    constraint people_have_keys
        check ((state in ('approved', 'edited', 'replaced', 'rejected', 'answered')) = (decided_key_id is not null)),
    constraint decisions_have_bodies check ((state in ('edited', 'replaced', 'answered')) = (decision_body is not null)),
    constraint replacements_have_tools check ((state = 'replaced') = (decision_tool is not null))
);

create index human_requests_waiting on human_requests (tenant_id, id) where state = 'waiting';
create index human_requests_due on human_requests (expires_at) where state = 'waiting';
create index human_requests_tenant on human_requests (tenant_id, id);
create index human_requests_decided on human_requests (decided_at) where decided_at is not null;

-- Closes what an execution that ends still waited for. Called with its row locked. Volatile, as `longhaul_unpark` is: the
-- statement's own snapshot may be older than a request that it waited for.
create function longhaul_close_requests(execution uuid) returns void
    language sql volatile
    as $$
        update human_requests set state = 'closed', decided_at = longhaul_now()
        where execution_id = execution and state = 'waiting'
    $$;
