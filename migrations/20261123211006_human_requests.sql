-- Approvals and questions: a call that waits for a person to allow it, or to answer it.

create table human_requests (
    id uuid primary key,
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
    -- JSON pointers to arguments that are hidden from people. The arguments stay exact: the call runs with them, and the hash is
    -- over them.
    redact jsonb not null default '[]',

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
