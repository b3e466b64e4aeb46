-- Weeks of history, by their Mondays, that ended before `before` and in which every execution had ended by then
-- or was deleted.
create or replace function longhaul_prunable_weeks(before timestamptz) returns setof date
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
