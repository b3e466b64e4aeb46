-- Drops one table's partition of a prunable week. One table per call, because a drop blocks all writes to the
-- parent table: two in one transaction could deadlock with a write. The short lock timeout keeps a long-running
-- reader from blocking every statement queued behind the drop; the caller tries again. `events` must be dropped
-- last: its partitions tell which weeks are prunable.
create or replace function longhaul_drop_week(parent text, week date, before timestamptz) returns boolean
    language plpgsql
    set lock_timeout = '500ms'
    as $$
begin
    if parent not in ('attempts', 'steps', 'events')
        or week not in (select * from longhaul_prunable_weeks(before)) then
        return false;
    end if;
    execute format('drop table if exists %I', parent || '_' || to_char(week, 'YYYYMMDD'));
    return true;
end
$$;
