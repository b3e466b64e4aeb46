-- Returns true if a limit key has a free slot, made or not.
create or replace function longhaul_has_free_slots(name text) returns boolean
    language sql stable
    as $$
        select exists (
            select from slot_keys k join limit_rules r on r.id = k.rule_id
            where k.key = name and (
                k.made < r.max
                or exists (select from slots s where s.key = k.key and s.execution_id is null and s.number <= r.max)
            )
        )
    $$;
