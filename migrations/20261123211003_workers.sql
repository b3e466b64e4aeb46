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
    dead_at timestamptz,
    -- Resident memory of the process at its last renewal, in bytes; null where the kernel does not tell.
    memory_bytes bigint,
    -- Length of the lease. The reaper needs it to tell an expired lease from one that a restart of the server interrupted
    -- (docs/adr/0003-leases-and-outages.md).
    lease interval,
    -- Start of the current run of renewals without a gap. A worker may declare others dead only once this is a lease ago.
    steady_since timestamptz
) with (fillfactor = 50);
