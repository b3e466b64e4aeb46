-- Takes a slot of each of these keys, or none. Returns the first key that has none free, null when all were had.
create or replace function longhaul_take_slots(execution uuid, tenant uuid, names text[]) returns text
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    name text;
    place int;
    places int[] := '{}';
begin
    foreach name in array names loop
        place := null;
        if not exists (select from slots s where s.key = name and s.execution_id = execution) then
            select s.number into place
            from slots s join slot_keys k on k.key = s.key join limit_rules r on r.id = k.rule_id
            where s.key = name and s.execution_id is null and s.number <= r.max
            order by s.number
            limit 1
            for update of s skip locked;
            if not found then
                return name;
            end if;
        end if;
        places := places || place;
    end loop;
    update slots s
    set execution_id = execution, tenant_id = tenant, since = longhaul_now()
    from unnest(names, places) as mine (key, number)
    where s.key = mine.key and s.number = mine.number;
    return null;
end
$$;
