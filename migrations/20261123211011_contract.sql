-- The agent-execution contract (docs/adr/0015-agent-execution-contract.md): the platform of capabilities, access
-- to agents, and executions that another engine runs. An operator writes the platform; a submit reads the active
-- profile and passes the run a snapshot.

-- Models that a binding may list as resources.
create table managed_models (
    id text primary key check (id <> ''),
    display_name text not null,
    -- Name of the model at the provider; null: the provider is asked.
    provider_model_id text,
    metadata jsonb not null default '{}',
    changed_at timestamptz not null
);

-- Providers of capabilities, with the result of the last health check.
create table platform_providers (
    slug text primary key check (slug <> ''),
    id uuid not null unique default gen_random_uuid(),
    provider_key text not null,
    provider_origin text not null check (provider_origin in ('local', 'cloud')),
    display_name text not null,
    description text not null,
    adapter_kind text not null,
    endpoint_url text not null,
    healthcheck_url text,
    enabled boolean not null,
    -- Literal secrets in it are encrypted.
    config jsonb not null,
    changed_at timestamptz not null,
    -- Result of the last request to `healthcheck_url`; `asked_at` is set before a request is sent.
    health text not null default 'unknown' check (health in ('unknown', 'up', 'down')),
    health_detail text,
    health_since timestamptz,
    asked_at timestamptz
);

-- Deployment profiles: sets of bindings, of which one profile is active.
create table platform_profiles (
    slug text primary key check (slug <> ''),
    id uuid not null unique default gen_random_uuid(),
    display_name text not null,
    changed_at timestamptz not null
);

-- Bindings of a capability to a provider within a profile.
create table platform_bindings (
    profile text not null references platform_profiles on delete cascade,
    capability text not null check (capability in
        ('llm_inference', 'embeddings', 'vector_store', 'mcp_runtime', 'sandbox_execution')),
    provider text not null references platform_providers,
    -- Ids of managed models, or whole resources, in the order in which they are listed.
    resources jsonb not null,
    default_resource_id text,
    resource_policy jsonb not null,
    binding_config jsonb not null,
    changed_at timestamptz not null,
    primary key (profile, capability)
);

-- One row: the active profile, and the runtime profile of runs that request none.
create table platform_state (
    id boolean primary key default true check (id),
    active_profile text references platform_profiles on delete set null,
    runtime_profile text check (runtime_profile in ('online', 'offline'))
);
insert into platform_state default values;

-- Tools that agents may name in `tool_refs`.
create table catalogue_tools (
    tool_ref text primary key check (tool_ref <> ''),
    tool_name text not null check (tool_name ~ '^[a-zA-Z0-9_-]{1,64}$'),
    description text not null,
    transport text not null,
    connection_profile_ref text not null default 'default',
    input_schema jsonb not null,
    safety_policy jsonb not null,
    offline_compatible boolean not null,
    effect text not null check (effect in ('read_only', 'idempotent', 'side_effect')),
    changed_at timestamptz not null
);
insert into catalogue_tools values
    ('tool.web_search', 'web_search', 'Searches the web and returns titles, addresses and snippets.', 'mcp', 'default',
     '{"type": "object", "properties": {"query": {"type": "string"}, "top_k": {"type": "integer", "minimum": 1, "maximum": 10},
       "language": {"type": "string"}, "time_range": {"type": "string", "enum": ["day", "month", "year"]},
       "safesearch": {"type": "integer", "enum": [0, 1, 2]}, "categories": {"type": "string"}},
       "required": ["query"], "additionalProperties": false}',
     '{"timeout_seconds": 8, "network_access": true}', false, 'read_only', now()),
    ('tool.python_exec', 'python_exec',
        'Runs Python code in a sandbox without network. `input` is what the call passes; put the answer in `result`.',
     'sandbox_http', 'default',
     '{"type": "object", "properties": {"code": {"type": "string"}, "input": {},
       "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": 30}}, "required": ["code"], "additionalProperties": false}',
     '{"timeout_seconds": 5, "network_access": false, "allow_imports": false}', true, 'side_effect', now());

-- Access to agents. An agent without a row in `agent_access` is open to every submitter; one with a row is open
-- to its owner and its shares. Policy rules come first: a deny always wins.
create table agent_access (
    agent_key text primary key,
    owner_user_id bigint,
    changed_at timestamptz not null
);

-- Shares of an agent with the public, a user, a role, an organisation or a group.
create table agent_shares (
    agent_key text not null references agent_access on delete cascade,
    grantee_type text not null check (grantee_type in ('public', 'user', 'role', 'org', 'group')),
    grantee_id text not null,
    permission text not null check (permission in ('view', 'fork', 'execute', 'admin')),
    primary key (agent_key, grantee_type, grantee_id, permission)
);

-- Rules that allow or deny the use of agents.
create table policy_rules (
    id text primary key check (id <> ''),
    effect text not null check (effect in ('allow', 'deny')),
    scope_type text not null check (scope_type in ('user', 'role', 'org', 'group')),
    scope_id text not null,
    -- Key of an agent, or * for all.
    resource_id text not null,
    -- execute, or * for everything.
    action text not null,
    changed_at timestamptz not null
);
create index policy_rules_scope on policy_rules (scope_type, scope_id);

-- Executions that another engine runs, with the tenant that may read them. Later inserts delete rows older than
-- 30 days.
create table forwarded_executions (
    id text primary key,
    tenant_id uuid not null references tenants,
    created_at timestamptz not null
);
create index forwarded_executions_age on forwarded_executions (created_at);
