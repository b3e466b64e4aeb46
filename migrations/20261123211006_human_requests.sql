-- Approvals, questions and calls of the caller's tools: tool calls that wait for a person to allow or answer them, or
-- for the caller to run them.

create table human_requests (
    id uuid primary key,
    execution_id uuid not null,
    tenant_id uuid not null references tenants,
    agent_key text not null,
    kind text not null check (kind in ('approval', 'question', 'tool_call')),
    -- Key of the call's step, and number of earlier replacements of the call. A request repeated after a crash
    -- finds the same row.
    call_key bytea not null check (length(call_key) = 32),
    round int not null,
    -- The call's id in the transcript, by which the caller posts its result.
    call_id text not null,
    tool text not null,
    -- `arguments`: the resolved arguments as exact bytes, compressed. `shown`: their shortened text for people,
    -- or the text of the question.
    arguments bytea not null,
    shown text not null,
    -- SHA-256 over tool and arguments, and over the call's key if the caller runs it. A decision names it, so that
    -- only the call which the person saw is run.
    hash bytea not null check (length(hash) = 32),
    -- JSON Schema of edited arguments, or of the answer or output.
    schema json,
    -- Rule that requires the approval.
    policy text,
    -- True if the key that submitted the execution may decide.
    allow_self boolean not null,
    requested_at timestamptz not null,
    expires_at timestamptz not null,
    state text not null default 'waiting'
        check (state in (
            'waiting', 'approved', 'edited', 'replaced', 'rejected', 'answered', 'failed', 'expired', 'closed'
        )),
    decided_at timestamptz,
    -- Key that decided, and the person it decided for as stated by the caller.
    decided_key_id uuid,
    decided_key_name text,
    decided_by text,
    reason text,
    -- Replacement of the call (tool and arguments), edited arguments, answer, output or error: exact bytes,
    -- compressed.
    decision_tool text,
    decision_body bytea,
    -- JSON pointers to arguments hidden from people. `arguments` stays complete: the call runs with it, and
    -- `hash` covers it.
    redact jsonb not null default '[]',

    unique (execution_id, call_key, kind, round),
    constraint decided_once check ((state = 'waiting') = (decided_at is null)),
    constraint people_have_keys check (
        (state in ('approved', 'edited', 'replaced', 'rejected', 'answered', 'failed')) = (decided_key_id is not null)
    ),
    constraint decisions_have_bodies
        check ((state in ('edited', 'replaced', 'answered', 'failed')) = (decision_body is not null)),
    constraint replacements_have_tools check ((state = 'replaced') = (decision_tool is not null))
);

create index human_requests_waiting on human_requests (tenant_id, id) where state = 'waiting';
create index human_requests_due on human_requests (expires_at) where state = 'waiting';
create index human_requests_tenant on human_requests (tenant_id, id);
create index human_requests_decided on human_requests (decided_at) where decided_at is not null;

-- A call to be requested, under the lease of its attempt. `schema` is JSON text.
create type requested_call as (
    execution_id uuid,
    token uuid,
    kind text,
    call_key bytea,
    round int,
    call_id text,
    tool text,
    arguments bytea,
    shown text,
    hash bytea,
    schema text,
    policy text,
    allow_self boolean,
    expires_seconds float8,
    redact jsonb
);

-- A decision on the request `id`, which must be of that kind and hash.
create type request_decision as (
    id uuid,
    kind text,
    hash bytea,
    state text,
    key_id uuid,
    key_name text,
    person text,
    reason text,
    tool text,
    body bytea
);
