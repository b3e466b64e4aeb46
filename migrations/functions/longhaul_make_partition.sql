-- Makes the first missing weekly partition of one history table, from last week to `weeks` ahead, and returns its
-- name; null if none is missing. One table per call, so that a transaction waits for the locks of one table only. A
-- week whose rows are in the default partition already cannot be attached and is passed over; the metric of such rows
-- alarms.
--
-- The partition is made apart and then attached: `create table … partition of` would lock the parent against all reads
-- and writes, an attach locks the default partition only. The short lock timeout keeps a long-running reader of the
-- default partition (a dump) from blocking every statement queued behind the attach; the caller tries again later.
create or replace function longhaul_make_partition(parent text, weeks int) returns text
    language plpgsql
    set lock_timeout = '200ms'
    as $$
declare
    week timestamptz;
    name text;
begin
    -- A migration and the sweep may call at once.
    perform pg_advisory_xact_lock(hashtext('longhaul.partitions'));
    for i in -1..weeks loop
        week := date_trunc('week', longhaul_now() at time zone 'UTC') at time zone 'UTC' + i * interval '1 week';
        name := parent || '_' || to_char(week at time zone 'UTC', 'YYYYMMDD');
        if to_regclass(name) is null then
            begin
                execute format('create table %I (like %I including all)', name, parent);
                execute format('alter table %I attach partition %I for values from (%L) to (%L)',
                    parent, name, longhaul_uuid_floor(week), longhaul_uuid_floor(week + interval '1 week'));
                return name;
            exception when check_violation then
                raise warning 'rows of % are in the default partition', name;
            end;
        end if;
    end loop;
    return null;
end
$$;
