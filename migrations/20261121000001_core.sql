-- The core schema. `executions` is narrow, hot and not partitioned; what describes an execution at length lives beside it
-- (`execution_payloads`) and its history (`attempts`, `steps`, `messages`, `events`) is partitioned by execution id, which is a
-- UUIDv7, so that old history is pruned by dropping partitions. See docs/adr/0002-storage.md.

-- Time -------------------------------------------------------------------------------------------------------------------------

-- One row: what tests add to the clock of this database. Zero in production.
create table clock (
    id boolean primary key default true check (id),
    shift interval not null default '0'
);
insert into clock default values;

-- The only clock SQL reads, apart from heartbeats, which use the real one.
create function longhaul_now() returns timestamptz
    language sql volatile parallel safe
    as $$ select clock_timestamp() + (select shift from clock) $$;

-- The smallest UUIDv7 of an instant; bounds of partitions and of time filters.
create function longhaul_uuid_floor(instant timestamptz) returns uuid
    language sql immutable parallel safe
    as $$ select (lpad(to_hex((extract(epoch from instant) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid $$;

-- Tenants and keys -------------------------------------------------------------------------------------------------------------

create table tenants (
    id uuid primary key,
    org_id text not null check (org_id <> ''),
    group_id text not null default '',
    created_at timestamptz not null,
    unique (org_id, group_id)
);

create table api_keys (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    name text not null,
    -- The first characters, so that people can tell keys apart; the key itself is not stored.
    prefix text not null,
    hash bytea not null unique,
    scopes text[] not null,
    created_at timestamptz not null,
    revoked_at timestamptz
);

-- Agents and definitions: immutable versions ------------------------------------------------------------------------------------

-- `tenant_id` null: shared by all tenants (applied by an operator, or published by a worker).
create table agent_versions (
    id uuid primary key,
    tenant_id uuid references tenants,
    key text not null,
    version int not null check (version > 0),
    -- SHA-256 over the exact bytes of `spec`; putting the same content again is the same version.
    spec_hash bytea not null,
    spec json not null,
    created_at timestamptz not null,
    removed_at timestamptz
);
create unique index agent_versions_key on agent_versions (key, tenant_id, version) nulls not distinct;

create table definition_versions (
    id uuid primary key,
    tenant_id uuid references tenants,
    key text not null,
    version int not null check (version > 0),
    agent_key text not null,
    spec_hash bytea not null,
    spec json not null,
    created_at timestamptz not null,
    removed_at timestamptz
);
create unique index definition_versions_key on definition_versions (key, tenant_id, version) nulls not distinct;

-- What a worker must have to run an execution: '' for what every worker has, else the names of Rust definitions, tools and
-- validators it must register. Executions carry the key; workers publish the keys they satisfy.
create table serve_keys (
    key text primary key,
    requirements text[] not null
);

-- Workers ----------------------------------------------------------------------------------------------------------------------

-- One row per process start. A worker id dies once and never comes back. Times are of the real clock.
create table workers (
    id uuid primary key,
    host text not null,
    pid int not null,
    build text not null,
    queues text[] not null,
    serves text[] not null,
    concurrency int not null,
    started_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    dead_at timestamptz
) with (fillfactor = 50);

-- Executions -------------------------------------------------------------------------------------------------------------------

create type execution_status as enum ('PENDING', 'IN_PROGRESS', 'FINISHED', 'FAILED');

create table executions (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    -- Immutable: what was asked for.
    definition_key text not null,
    definition_version_id uuid not null,
    agent_key text not null,
    agent_version_id uuid not null,
    queue text not null,
    serve_key text not null,
    priority smallint not null check (priority between 0 and 9),
    metadata jsonb not null default '{}',
    created_at timestamptz not null,
    deadline_at timestamptz not null,
    active_timeout interval not null,
    retry_of uuid,
    submitted_by uuid,
    -- Mutable: where it stands.
    status execution_status not null default 'PENDING',
    wait_reason text check (wait_reason in ('worker', 'scheduled', 'retry_backoff', 'approval', 'children', 'concurrency_limit',
        'rate_limit', 'budget', 'provider_down', 'queue_paused', 'input', 'no_worker')),
    wait_until timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    cancel_requested_at timestamptz,
    failure_class text check (failure_class in ('transient', 'tool_error', 'llm_error', 'context_limit', 'permanent', 'human_rejected')),
    failure_code text,
    -- The lease. `lease_write` numbers the writes made under one token, so that a repeated write is recognised.
    worker_id uuid,
    lease_token uuid,
    lease_write int not null default 0,
    claimed_at timestamptz,
    active_until timestamptz,
    -- Counters.
    attempt int not null default 0,
    lane smallint not null default 0,
    crash_count smallint not null default 0,
    transient_retries smallint not null default 0,
    tool_error_retries smallint not null default 0,
    llm_error_retries smallint not null default 0,
    wake_seq int not null default 0,
    event_seq int not null default 0,
    turns int not null default 0,
    calls int not null default 0,
    input_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    active_time interval not null default '0',

    constraint pending_waits check (status <> 'PENDING' or (wait_reason is not null and started_at is null)),
    constraint running_is_held_or_waits check (status <> 'IN_PROGRESS' or (wait_reason is null) = (worker_id is not null)),
    constraint only_running_is_held check (worker_id is null or (status = 'IN_PROGRESS' and lease_token is not null)),
    constraint started_once check (status not in ('IN_PROGRESS', 'FINISHED') or started_at is not null),
    constraint terminal_is_finished check ((status in ('FINISHED', 'FAILED')) = (finished_at is not null)),
    constraint terminal_waits_for_nothing check (finished_at is null or (wait_reason is null and wait_until is null)),
    constraint failed_has_a_cause check ((status = 'FAILED') = (failure_code is not null and failure_class is not null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);

-- The three partial indexes over columns that change (core-rules 16): what can be claimed, what is held, what is not over.
create index executions_claim on executions (queue, serve_key, lane, priority desc, id) where wait_reason = 'worker';
create index executions_held on executions (worker_id) where worker_id is not null;
create index executions_open on executions (tenant_id, status, id) where finished_at is null;
-- Entered once, at the end.
create index executions_failed on executions (tenant_id, failure_code, id) where status = 'FAILED';
-- Immutable.
create index executions_tenant on executions (tenant_id, id);
create index executions_definition on executions (tenant_id, definition_key, id);
create index executions_agent on executions (tenant_id, agent_key, id);
create index executions_metadata on executions using gin (metadata jsonb_path_ops) with (fastupdate = on) where metadata <> '{}';

-- What describes one execution at length. `json` keeps bytes as they were sent; what dashboards read is here.
create table execution_payloads (
    execution_id uuid primary key,
    input json not null,
    output json,
    failure_summary text,
    failure_detail json,
    traceparent text
) with (fillfactor = 70);

-- Parked executions by reason: the sweep's work list. A row lives exactly as long as the execution waits for something other
-- than a worker.
create table parked (
    execution_id uuid primary key,
    tenant_id uuid not null,
    wait_reason text not null,
    wait_until timestamptz not null
);
-- Removes the row of an execution that is locked by the calling statement. Volatile, so that it looks with a snapshot of its own:
-- the statement's is older than a park that it waited for, and would leave that park's row behind.
create function longhaul_unpark(execution uuid) returns void
    language sql volatile
    as $$ delete from parked where execution_id = execution $$;
create index parked_due on parked (wait_until);
create index parked_reason on parked (tenant_id, wait_reason, execution_id);

-- Deadlines nearer than the default, so that the sweep can enforce them without scanning the backlog.
create table deadlines (
    execution_id uuid primary key,
    deadline_at timestamptz not null
);
create index deadlines_due on deadlines (deadline_at);

create table idempotency_keys (
    tenant_id uuid not null,
    key text not null,
    execution_id uuid not null,
    request_hash bytea not null,
    created_at timestamptz not null,
    primary key (tenant_id, key)
);
create index idempotency_keys_age on idempotency_keys using brin (created_at);

-- Counts by status, kept by the sweep: writers append differences, one row per group and batch; the sweep folds them.
create table execution_counts (
    tenant_id uuid not null,
    definition_key text not null,
    agent_key text not null,
    day date not null,
    status execution_status not null,
    n bigint not null,
    primary key (tenant_id, definition_key, agent_key, day, status)
) with (fillfactor = 70);

create table execution_count_changes (
    tenant_id uuid not null,
    definition_key text not null,
    agent_key text not null,
    day date not null,
    status execution_status not null,
    n bigint not null
);

-- History, partitioned by execution id ------------------------------------------------------------------------------------------

-- One row per ended lease.
create table attempts (
    execution_id uuid not null,
    number int not null,
    worker_id uuid not null,
    lease_token uuid not null,
    started_at timestamptz not null,
    ended_at timestamptz not null,
    outcome text not null check (outcome in ('finished', 'failed', 'parked', 'retrying', 'released', 'drained', 'lost', 'cancelled')),
    failure_class text,
    failure_code text,
    failure_summary text,
    wait_reason text,
    primary key (execution_id, number)
) partition by range (execution_id);

-- The journal (worker/src/agent/journal). `body` holds exact bytes, compressed; `preview` is for people.
create table steps (
    execution_id uuid not null,
    seq int not null,
    attempt int not null,
    kind text not null check (kind in ('prompt', 'turn', 'call', 'verdict', 'correction', 'compression')),
    state text not null check (state in ('intent', 'live', 'spent')),
    -- SHA-256 of what the step is, for look-up by content; `occurrence` counts the spent steps with the same key before it.
    key bytea not null,
    occurrence int not null default 0,
    name text,
    -- Hashes of the messages it appended to the transcript, in order.
    appends bytea[] not null default '{}',
    body bytea not null,
    preview text,
    failure_code text,
    input_tokens int,
    output_tokens int,
    cached_tokens int,
    started_at timestamptz not null,
    finished_at timestamptz,
    primary key (execution_id, seq)
) partition by range (execution_id);

-- Messages of the transcript, once per execution, by the SHA-256 of their exact bytes.
create table messages (
    execution_id uuid not null,
    hash bytea not null,
    body bytea not null,
    primary key (execution_id, hash)
) partition by range (execution_id);

-- What observers see, numbered per execution without gaps.
create table events (
    execution_id uuid not null,
    seq int not null,
    at timestamptz not null,
    kind text not null,
    data jsonb,
    primary key (execution_id, seq)
) partition by range (execution_id);

-- Anything that falls outside the ranges made ahead; rows in here are an alarm (metric `store_default_partition_rows`).
create table attempts_default partition of attempts default;
create table steps_default partition of steps default;
create table messages_default partition of messages default;
create table events_default partition of events default;

-- Makes the weekly partitions from the current week on. The sweep calls it; it is idempotent, and the one place where DDL is
-- built at run time.
create function longhaul_ensure_partitions(weeks int) returns int
    language plpgsql
    as $$
declare
    week timestamptz;
    parent text;
    made int := 0;
begin
    for i in -1..weeks loop
        week := date_trunc('week', longhaul_now() at time zone 'UTC') at time zone 'UTC' + i * interval '1 week';
        foreach parent in array array['attempts', 'steps', 'messages', 'events'] loop
            if to_regclass(format('%s_%s', parent, to_char(week at time zone 'UTC', 'YYYYMMDD'))) is null then
                execute format('create table %I partition of %I for values from (%L) to (%L)',
                    parent || '_' || to_char(week at time zone 'UTC', 'YYYYMMDD'), parent,
                    longhaul_uuid_floor(week), longhaul_uuid_floor(week + interval '1 week'));
                made := made + 1;
            end if;
        end loop;
    end loop;
    return made;
end
$$;
select longhaul_ensure_partitions(4);

-- For people and BI tools --------------------------------------------------------------------------------------------------------

create view execution_overview as
select
    e.id,
    t.org_id,
    nullif(t.group_id, '') as group_id,
    e.definition_key,
    d.version as definition_version,
    e.agent_key,
    a.version as agent_version,
    e.queue,
    e.priority,
    e.status::text as status,
    e.wait_reason,
    e.wait_until,
    e.failure_class,
    e.failure_code,
    p.failure_summary,
    e.attempt as attempts,
    e.transient_retries + e.tool_error_retries + e.llm_error_retries as retries,
    e.turns,
    e.calls,
    e.input_tokens,
    e.output_tokens,
    e.created_at,
    e.started_at,
    e.finished_at,
    extract(epoch from e.started_at - e.created_at)::float8 as wait_seconds,
    extract(epoch from e.finished_at - e.created_at)::float8 as total_seconds,
    extract(epoch from e.active_time)::float8 as active_seconds,
    e.worker_id,
    e.retry_of,
    e.metadata,
    p.input,
    p.output
from executions e
join tenants t on t.id = e.tenant_id
join execution_payloads p on p.execution_id = e.id
left join definition_versions d on d.id = e.definition_version_id
left join agent_versions a on a.id = e.agent_version_id;

create view execution_stats as
select
    t.org_id,
    nullif(t.group_id, '') as group_id,
    c.definition_key,
    c.agent_key,
    c.day,
    c.status::text as status,
    sum(c.n)::bigint as executions
from (
    select * from execution_counts
    union all
    select * from execution_count_changes
) c
join tenants t on t.id = c.tenant_id
group by t.org_id, t.group_id, c.definition_key, c.agent_key, c.day, c.status
having sum(c.n) <> 0;
