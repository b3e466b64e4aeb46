-- One row per process start. A worker id dies once and never comes back. Times are of the real clock.
--
-- This is the row that every write is fenced on. Renewals do not touch it: each of its versions would be read by every
-- write for as long as somebody holds an old snapshot (core-rules 24, docs/adr/0037-fence-row-and-heartbeat.md).
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
    -- Suspects that it held when it was declared dead (core-rules 5, 25).
    suspects int,
    -- Resident memory of the process at its last renewal before its death, in bytes.
    memory_bytes bigint
);
create index workers_dead on workers (id) where dead_at is not null;

-- The lease of a worker: one row each, written by its renewals. `expires_at` is in the key so that the newest version
-- of a row is the first entry of a backward scan, however many old ones a held snapshot keeps behind it.
create table worker_heartbeats (
    worker_id uuid not null references workers on delete cascade,
    expires_at timestamptz not null,
    -- Start of the current run of renewals without a gap. A worker may declare others dead only once this is a lease
    -- ago.
    steady_since timestamptz not null default clock_timestamp(),
    -- Resident memory of the process at its last renewal, in bytes; null where the kernel does not tell.
    memory_bytes bigint,
    primary key (worker_id, expires_at)
);

create view live_workers as
select w.id, w.host, w.pid, w.build, w.queues, w.serves, w.concurrency, w.started_at, h.expires_at, h.steady_since, h.memory_bytes
from workers w cross join lateral (
    select h.expires_at, h.steady_since, h.memory_bytes from worker_heartbeats h
    where h.worker_id = w.id order by h.expires_at desc limit 1
) h
where w.dead_at is null;
