-- Pruning what is over for long. A week of history is dropped as a whole when nothing in it is needed any more; what is left of old
-- executions is deleted in bounded batches by the program. As in longhaul_ensure_partitions, the names of partitions make this DDL
-- that is built at run time.

-- The weeks of history, by their Mondays, that were over before `before` and in which every execution had ended by then, or is gone.
create function longhaul_prunable_weeks(before timestamptz) returns setof date
    language sql stable
    as $$
    select partition.week
    from pg_inherits
    join pg_class on pg_class.oid = pg_inherits.inhrelid
    cross join lateral (
        select to_date(substring(pg_class.relname from '^events_(\d{8})$'), 'YYYYMMDD') as week
    ) as partition
    where pg_inherits.inhparent = 'events'::regclass
        and partition.week + 7 <= (before at time zone 'UTC')::date
        and not exists (
            select from executions e
            where e.id >= longhaul_uuid_floor(partition.week::timestamp at time zone 'UTC')
                and e.id < longhaul_uuid_floor((partition.week + 7)::timestamp at time zone 'UTC')
                and (e.finished_at is null or e.finished_at >= before)
        )
    order by partition.week
$$;

-- Drops one table's partition of a prunable week. A table by itself, because each drop stops all writes to its parent for the
-- moment it takes: two at once could wait for a write that waits for them. The short limit keeps a long-running reader from
-- holding up everybody who comes after us; the caller tries again. Call it for `events` last: the week is found by that one.
create function longhaul_drop_week(parent text, week date, before timestamptz) returns boolean
    language plpgsql
    set lock_timeout = '500ms'
    as $$
begin
    if parent not in ('attempts', 'steps', 'messages', 'events')
        or week not in (select * from longhaul_prunable_weeks(before)) then
        return false;
    end if;
    execute format('drop table if exists %I', parent || '_' || to_char(week, 'YYYYMMDD'));
    return true;
end
$$;
