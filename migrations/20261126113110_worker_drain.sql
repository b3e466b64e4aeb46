-- Workers that are told to drain, and what the list of workers shows of their leases.

-- Time since which the worker claims nothing more: a request set it, or the worker when it was told to stop. Written
-- once in a worker's life, so that the fence row stays free of dead versions.
alter table workers add column draining_since timestamptz;

-- Time of the last renewal; null for a worker of an older release.
alter table worker_heartbeats add column renewed_at timestamptz;

-- Finds the executions that a worker held when it was declared dead. Few attempts end so.
create index attempts_lost on attempts (worker_id) where outcome = 'lost';
