-- Permits of workers that tenants hold, exchanged every two seconds for the fair order of claims
-- (crates/store/src/fleet/shares.rs). Losing both tables costs only some fairness for some seconds.

-- Permits held in one worker, by tenant. A row that is older than a few seconds does not count.
create table worker_permits (
    worker_id uuid primary key references workers on delete cascade,
    tenants uuid[] not null,
    held int[] not null,
    at timestamptz not null
);

-- Their sum over the fleet: one row, which whichever worker finds it old renews, so that the cost of a sum does not
-- grow with the square of the fleet.
create table fleet_permits (
    is_sum boolean primary key default true check (is_sum),
    tenants uuid[] not null default '{}',
    held bigint[] not null default '{}',
    at timestamptz not null default '-infinity'
);
insert into fleet_permits default values;
