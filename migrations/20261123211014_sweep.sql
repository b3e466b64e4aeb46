-- Duties of the fleet's sweep (core-rules 23, docs/adr/0038-one-sweep.md). The first process that finds a duty
-- due takes it. `taken_at` is in the key so that the newest version of a row is the first entry of a backward
-- scan, however many dead versions an old snapshot keeps. Times are of the real clock.
create table sweep_duties (
    duty text not null,
    taken_at timestamptz not null default '-infinity',
    due_at timestamptz not null default '-infinity',
    -- Result of the last run that every worker shows in its metrics.
    told jsonb,
    primary key (duty, taken_at)
);
