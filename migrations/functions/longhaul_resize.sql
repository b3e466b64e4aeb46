-- Applies a changed limit. A smaller limit deletes its free slots; held slots stay held, and move to lower
-- numbers where those are free. The slots of a larger limit are made when they are first taken.
create or replace function longhaul_resize() returns trigger
    language plpgsql
    as $$
declare
    over slots;
    place int;
begin
    for over in
        select s.* from slots s join slot_keys k on k.key = s.key
        where k.rule_id = new.id and s.number > new.max and s.execution_id is not null
        order by s.key, s.number
        for update of s skip locked
    loop
        select s.number into place from slots s
        where s.key = over.key and s.execution_id is null and s.number <= new.max
        order by s.number limit 1
        for update skip locked;
        continue when not found;
        update slots s set execution_id = over.execution_id, tenant_id = over.tenant_id, since = over.since
        where s.key = over.key and s.number = place;
        delete from slots s where s.key = over.key and s.number = over.number;
    end loop;
    delete from slots s using slot_keys k
    where k.rule_id = new.id and s.key = k.key and s.number > new.max and s.execution_id is null;
    -- Also before the limit grows: a claim that still saw a larger limit may have made slots that are deleted by
    -- now.
    update slot_keys set made = least(old.max, new.max) where rule_id = new.id and made > least(old.max, new.max);
    return null;
end
$$;

create or replace trigger limit_rules_resize after update of max on limit_rules
    for each row when (old.max <> new.max) execute function longhaul_resize();
