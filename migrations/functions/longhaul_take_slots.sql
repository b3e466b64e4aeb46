-- Takes a slot of each of these keys, or none. `missing` is the first key without a free slot, null if all were
-- taken. Waits for no other transaction; `is_busy` means that another one is making a slot of the missing key, so
-- that it may have room.
--
-- A slot is made when it is first taken, with the next number, under the lock of the key's row. A freed slot is
-- used again.
create or replace function longhaul_take_slots(execution uuid, tenant uuid, names text[], out missing text,
    out is_busy boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    name text;
    place int;
    places int[] := '{}';
    k record;
begin
    is_busy := false;
    foreach name in array names loop
        place := null;
        if not exists (select from slots s where s.key = name and s.execution_id = execution) then
            select s.number into place
            from slots s join slot_keys x on x.key = s.key join limit_rules r on r.id = x.rule_id
            where s.key = name and s.execution_id is null and s.number <= r.max
            order by s.number
            limit 1
            for update of s skip locked;
            if place is null and longhaul_has_unmade_slots(name) then
                select x.made, r.max into k
                from slot_keys x join limit_rules r on r.id = x.rule_id
                where x.key = name
                for no key update of x skip locked;
                is_busy := not found;
                if found and k.made < k.max then
                    -- Once a limit was reduced and raised again, held slots may exist above `made`.
                    insert into slots as s (key, number)
                    select name, n from generate_series(k.made + 1, least(k.max, k.made + 1 + (
                        select count(*)::int from slots o where o.key = name and o.number > k.made
                    ))) n
                    where not exists (select from slots o where o.key = name and o.number = n)
                    order by n
                    limit 1
                    returning s.number into place;
                    update slot_keys set made = coalesce(place, k.max) where key = name;
                end if;
            end if;
            if place is null then
                missing := name;
                return;
            end if;
        end if;
        places := places || place;
    end loop;
    update slots s
    set execution_id = execution, tenant_id = tenant, since = longhaul_now()
    from unnest(names, places) as mine (key, number)
    where s.key = mine.key and s.number = mine.number;
end
$$;
