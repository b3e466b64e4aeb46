-- Makes the missing limit keys, without their slots: a slot is made when it is first taken. Inserts in key order,
-- so that two claims which make the same keys cannot deadlock.
create or replace function longhaul_make_keys(rules uuid[], names text[], vals text[]) returns void
    language plpgsql volatile
    as $$
#variable_conflict use_column
begin
    insert into slot_keys (key, rule_id, value, used_at)
    select distinct asked.key, asked.rule_id, asked.value, longhaul_now()
    from unnest(rules, names, vals) as asked (rule_id, key, value)
    where not exists (select from slot_keys s where s.key = asked.key)
    order by asked.key
    on conflict do nothing;
    -- A key locked by another transaction is in use there, too.
    update slot_keys s set used_at = longhaul_now()
    from (
        select u.key from slot_keys u
        where u.key = any (names) and u.used_at < longhaul_now() - interval '10 minutes'
        for no key update skip locked
    ) used
    where s.key = used.key;
end
$$;
