-- Makes the missing weekly partitions from last week to `weeks` ahead, and returns their number. The sweep calls
-- it; it is idempotent.
create or replace function longhaul_ensure_partitions(weeks int) returns int
    language plpgsql
    as $$
declare
    week timestamptz;
    parent text;
    made int := 0;
begin
    for i in -1..weeks loop
        week := date_trunc('week', longhaul_now() at time zone 'UTC') at time zone 'UTC' + i * interval '1 week';
        foreach parent in array array['attempts', 'steps', 'events'] loop
            if to_regclass(format('%s_%s', parent, to_char(week at time zone 'UTC', 'YYYYMMDD'))) is null then
                execute format('create table %I partition of %I for values from (%L) to (%L)',
                    parent || '_' || to_char(week at time zone 'UTC', 'YYYYMMDD'), parent,
                    longhaul_uuid_floor(week), longhaul_uuid_floor(week + interval '1 week'));
                made := made + 1;
            end if;
        end loop;
    end loop;
    return made;
end
$$;
