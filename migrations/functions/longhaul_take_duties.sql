-- Takes those of these duties that are due and that no other process is taking. Returns one row for each:
-- `taken_at` if it was taken, and the result of its last run. A duty not finished within `busy` seconds is due
-- again: its process may be dead.
create or replace function longhaul_take_duties(duties text[], periods float8[], busy float8)
    returns table (duty text, taken_at timestamptz, told jsonb)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    asked record;
    newest record;
begin
    for asked in select * from unnest(duties, periods) as asked (name, period) loop
        select d.ctid as place, d.due_at, d.told into newest
        from sweep_duties d where d.duty = asked.name order by d.taken_at desc limit 1;
        if not found then
            perform pg_advisory_xact_lock(hashtext('longhaul.sweep_duties'));
            insert into sweep_duties (duty)
            select asked.name where not exists (select from sweep_duties d where d.duty = asked.name);
            -- The next call may take it.
            continue;
        end if;
        duty := asked.name;
        taken_at := null;
        told := newest.told;
        if newest.due_at <= clock_timestamp() then
            -- Checked again under the lock: another process may have taken it meanwhile.
            perform from sweep_duties d
            where d.ctid = newest.place and d.due_at <= clock_timestamp()
            for update skip locked;
            if found then
                taken_at := clock_timestamp();
                update sweep_duties d
                set taken_at = longhaul_take_duties.taken_at,
                    due_at = longhaul_take_duties.taken_at + greatest(asked.period, busy) * interval '1 second'
                where d.ctid = newest.place;
            end if;
        end if;
        return next;
    end loop;
end
$$;
