-- Returns true if a limit key has slots that were never made.
create or replace function longhaul_has_unmade_slots(name text) returns boolean
    language sql stable
    as $$
        select exists (
            select from slot_keys k join limit_rules r on r.id = k.rule_id where k.key = name and k.made < r.max
        )
    $$;
