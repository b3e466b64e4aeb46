-- Schedules: executions that start again and again (docs/adr/0052-schedules.md).

create table schedules (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    key text not null,
    -- The schedule as its owner wrote it (`ScheduleSpec`); `json` keeps the input's bytes.
    spec json not null,
    -- Raised by each change of `spec`, so that a run planned by an older one is not started.
    revision int not null default 1,
    submitted_by uuid,
    -- Idempotency key of the request that created it, and the hash of that request.
    idempotency_key text,
    request_hash bytea,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- Start of the intervals.
    anchored_at timestamptz not null,
    paused_at timestamptz,
    pause_reason text check (pause_reason in ('requested', 'failures')),
    failures_in_a_row int not null default 0,
    -- Next tick; null if there is none any more.
    next_fire_at timestamptz,
    -- Newest tick that was fired.
    last_tick timestamptz,
    unique (tenant_id, key),
    check ((paused_at is null) = (pause_reason is null))
) with (fillfactor = 70);
-- Work list of the sweep.
create index schedules_due on schedules (next_fire_at) where paused_at is null and next_fire_at is not null;
create unique index schedules_idempotency on schedules (tenant_id, idempotency_key)
    where idempotency_key is not null;

-- Ticks that were fired, and runs that a person asked for. The primary key makes a tick fire once.
create table schedule_firings (
    schedule_id uuid not null references schedules on delete cascade,
    tick timestamptz not null,
    kind text not null check (kind in ('tick', 'manual')),
    -- Oldest tick that this firing stands for; earlier than `tick` if ticks were missed.
    first_tick timestamptz not null,
    -- queued: waits for the end of the run before it. running: its execution has not ended. ended: it has, and the
    -- schedule has not taken note of it. over: it has taken note. skipped: no execution was started.
    state text not null check (state in ('queued', 'running', 'ended', 'over', 'skipped')),
    -- Reason why no execution was started.
    reason text,
    execution_id uuid unique,
    fired_at timestamptz not null,
    -- How its execution ended.
    status text,
    failure_code text,
    -- Calendar month whose budget it reserved from, and the amounts; null without a monthly budget.
    month date,
    reserved_cost bigint not null default 0,
    reserved_tokens bigint not null default 0,
    reserved_calls bigint not null default 0,
    primary key (schedule_id, tick, kind),
    check ((state = 'skipped') = (reason is not null)),
    check ((state in ('running', 'ended', 'over')) = (execution_id is not null))
) with (fillfactor = 70);
-- Two runs of a schedule never overlap.
create unique index schedule_firings_running on schedule_firings (schedule_id) where state in ('running', 'ended');
create index schedule_firings_queued on schedule_firings (schedule_id, tick) where state = 'queued';
-- Work list of the sweep.
create index schedule_firings_ended on schedule_firings (fired_at) where state = 'ended';
create index schedule_firings_age on schedule_firings (fired_at) where state in ('over', 'skipped');

-- Amounts of a calendar month: of runs that have ended. What the run under way may spend is in its firing. Money is in
-- billionths of a US dollar.
create table schedule_months (
    schedule_id uuid not null references schedules on delete cascade,
    month date not null,
    spent_cost bigint not null default 0,
    spent_tokens bigint not null default 0,
    spent_calls bigint not null default 0,
    primary key (schedule_id, month)
) with (fillfactor = 50);

-- Schedule that started it; null for everything else.
alter table executions add column schedule_id uuid;
