-- One row per process start. A worker id dies once and never comes back. Times are of the real clock.
--
-- Every write of a worker is fenced by its row here. Renewals do not update it: while an old snapshot is held,
-- every write would read each dead version they leave behind (core-rules 24,
-- docs/adr/0037-fence-row-and-heartbeat.md).
create table workers (
    id uuid primary key,
    host text not null,
    pid int not null,
    build text not null,
    queues text[] not null,
    serves text[] not null,
    concurrency int not null,
    started_at timestamptz not null default clock_timestamp(),
    dead_at timestamptz,
    -- Number of suspects that the worker held when it was declared dead (core-rules 5, 25).
    suspects int,
    -- Resident memory of the process at its last renewal before its death, in bytes.
    memory_bytes bigint
);
create index workers_dead on workers (id) where dead_at is not null;

-- The lease of a worker: one row per worker, updated by its renewals. `expires_at` is in the key so that the
-- newest version of a row is the first entry of a backward scan, however many dead versions an old snapshot
-- keeps.
create table worker_heartbeats (
    worker_id uuid not null references workers on delete cascade,
    expires_at timestamptz not null,
    -- Start of the current run of renewals without a gap. A worker may declare others dead only when this is at
    -- least one lease ago.
    steady_since timestamptz not null default clock_timestamp(),
    -- Resident memory of the process at its last renewal, in bytes; null where the kernel does not report it.
    memory_bytes bigint,
    primary key (worker_id, expires_at)
);

-- Workers not declared dead, each with its newest heartbeat. Their leases may have expired.
create view live_workers as
select w.id, w.host, w.pid, w.build, w.queues, w.serves, w.concurrency, w.started_at, h.expires_at, h.steady_since,
    h.memory_bytes
from workers w cross join lateral (
    select h.expires_at, h.steady_since, h.memory_bytes from worker_heartbeats h
    where h.worker_id = w.id order by h.expires_at desc limit 1
) h
where w.dead_at is null;
