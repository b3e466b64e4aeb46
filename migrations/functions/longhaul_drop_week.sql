-- Drops one table's partition of a prunable week. A table by itself, because each drop stops all writes to its parent
-- for the moment it takes: two at once could wait for a write that waits for them. The short limit keeps a
-- long-running reader from holding up everybody who comes after us; the caller tries again. Call it for `events`
-- last: the week is found by that one.
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
