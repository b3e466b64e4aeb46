-- The platform of the agent-execution contract: who provides which capability. An operator writes it; a submit of
-- /v1/agent-executions reads the active profile and hands the run a snapshot (docs/adr/0015-agent-execution-contract.md).

create table managed_models (
    id text primary key check (id <> ''),
    display_name text not null,
    -- What the provider calls it; null: the provider is asked.
    provider_model_id text,
    metadata jsonb not null default '{}',
    changed_at timestamptz not null
);

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
    -- Literal secrets in it are sealed.
    config jsonb not null,
    changed_at timestamptz not null,
    -- What the last question at `healthcheck_url` found; `asked_at` is set by whoever is about to ask.
    health text not null default 'unknown' check (health in ('unknown', 'up', 'down')),
    health_detail text,
    health_since timestamptz,
    asked_at timestamptz
);

create table platform_profiles (
    slug text primary key check (slug <> ''),
    id uuid not null unique default gen_random_uuid(),
    display_name text not null,
    changed_at timestamptz not null
);

create table platform_bindings (
    profile text not null references platform_profiles on delete cascade,
    capability text not null check (capability in
        ('llm_inference', 'embeddings', 'vector_store', 'mcp_runtime', 'sandbox_execution')),
    provider text not null references platform_providers,
    -- Ids of managed models, or whole resources; in the order they are listed.
    resources jsonb not null,
    default_resource_id text,
    resource_policy jsonb not null,
    binding_config jsonb not null,
    changed_at timestamptz not null,
    primary key (profile, capability)
);

-- One row: which profile is active, and the runtime profile of runs that ask for none.
create table platform_state (
    id boolean primary key default true check (id),
    active_profile text references platform_profiles on delete set null,
    runtime_profile text check (runtime_profile in ('online', 'offline'))
);
insert into platform_state default values;

-- The tools that agents may name in `tool_refs`.
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
     '{"timeout_seconds": 8, "network_access": true}', false, 'read_only', longhaul_now()),
    ('tool.python_exec', 'python_exec', 'Runs Python code in a sandbox without network. `input` is what the call passes; put the answer in `result`.',
     'sandbox_http', 'default',
     '{"type": "object", "properties": {"code": {"type": "string"}, "input": {},
       "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": 30}}, "required": ["code"], "additionalProperties": false}',
     '{"timeout_seconds": 5, "network_access": false, "allow_imports": false}', true, 'side_effect', longhaul_now());
