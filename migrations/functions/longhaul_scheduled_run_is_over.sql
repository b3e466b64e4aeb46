-- True if an execution that ended has no descendant left. The end of each has settled its reservations
-- (`longhaul_settle_rest`), so what they spent is known.
create or replace function longhaul_scheduled_run_is_over(execution uuid) returns boolean
    language sql stable
    as $$
    select not exists (select from executions e where e.root_id = execution and e.finished_at is null)
$$;
