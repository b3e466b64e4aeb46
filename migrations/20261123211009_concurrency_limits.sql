-- Concurrency limits as slot rows (core-rules 12), and the usage by which claims order tenants (core-rules 11).
-- See docs/adr/0013-slots-and-fairness.md.

-- Concurrency limits: at most `max` executions at a time for each value of `expression`.
create table limit_rules (
    id uuid primary key default gen_random_uuid(),
    -- A definition or an agent limits its own executions; an operator limits any. The one rule of `session` limits the
    -- messages of sessions, for each tenant and agent (docs/adr/0045-sessions.md); `sub_agent`: children of one
    -- tenant, or with the subject `fleet` of all (docs/adr/0049-sub-agents.md).
    source text not null check (source in ('definition', 'agent', 'operator', 'session', 'sub_agent')),
    -- Tenant of the definition or agent, null if shared; for an operator's rule, the tenant it applies to, null
    -- for all.
    tenant_id uuid references tenants,
    -- Key of the definition or agent; '' for an operator's rule.
    subject text not null default '',
    -- Attribute by which executions are grouped: tenant, definition, agent, or metadata.<path>.
    expression text not null check (expression in ('tenant', 'definition', 'agent') or expression ~ '^metadata\..'),
    -- The only value limited; null: each value has its own limit.
    value text,
    max int not null check (max between 0 and 10000),
    changed_at timestamptz not null,
    constraint limit_rules_once unique nulls not distinct (source, subject, expression, tenant_id, value)
);
create index limit_rules_of_tenant on limit_rules (tenant_id, source, subject);

-- A key is a value of a rule that occurred in some execution. The first `made` of its slots exist: each is
-- inserted when it is first taken.
create table slot_keys (
    key text primary key,
    rule_id uuid not null references limit_rules on delete cascade,
    value text not null,
    made int not null default 0,
    used_at timestamptz not null
) with (fillfactor = 70);
create index slot_keys_rule on slot_keys (rule_id);

-- Slots of the keys, each with its holder; `execution_id` is null in a free slot.
create table slots (
    key text not null references slot_keys on delete cascade,
    number int not null,
    execution_id uuid,
    tenant_id uuid,
    since timestamptz,
    primary key (key, number)
) with (fillfactor = 70);
create index slots_free on slots (key, number) where execution_id is null;
create index slots_held on slots (execution_id) where execution_id is not null;
create index slots_shares on slots (key, tenant_id) where execution_id is not null;

-- Executions that wait for a slot, each in the line of one key. A row lives as long as the execution waits with
-- `concurrency_limit`.
create table slot_waiters (
    execution_id uuid primary key,
    tenant_id uuid not null,
    -- All keys that it needs, in order, and the one that was full.
    keys text[] not null,
    key text not null,
    is_new boolean not null,
    rank bigint not null,
    since timestamptz not null
);
create index slot_waiters_line on slot_waiters (key, tenant_id, is_new, rank, execution_id);

-- Recent usage of tenants in tokens, halved every five minutes. Workers add to it every few seconds.
create table tenant_usage (
    tenant_id uuid primary key,
    tokens float8 not null,
    at timestamptz not null
) with (fillfactor = 50);
