-- Who may execute which agent over the agent-execution contract. An agent without a row in `agent_access` is open to everybody who may
-- submit; one with a row is its owner's and of those it is shared with. Rules are looked at first: a deny always wins.

create table agent_access (
    agent_key text primary key,
    owner_user_id bigint,
    changed_at timestamptz not null
);

create table agent_shares (
    agent_key text not null references agent_access on delete cascade,
    grantee_type text not null check (grantee_type in ('public', 'user', 'role', 'org', 'group')),
    grantee_id text not null,
    permission text not null check (permission in ('view', 'fork', 'execute', 'admin')),
    primary key (agent_key, grantee_type, grantee_id, permission)
);

create table policy_rules (
    id text primary key check (id <> ''),
    effect text not null check (effect in ('allow', 'deny')),
    scope_type text not null check (scope_type in ('user', 'role', 'org', 'group')),
    scope_id text not null,
    -- An agent's key, or * for all.
    resource_id text not null,
    -- execute, or * for everything.
    action text not null,
    changed_at timestamptz not null
);
create index policy_rules_scope on policy_rules (scope_type, scope_id);
