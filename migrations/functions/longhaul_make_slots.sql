-- Makes what is missing of these keys and their slots. In the order of keys, so that two that make the same wait for
-- each other and no more.
create or replace function longhaul_make_slots(rules uuid[], names text[], vals text[]) returns void
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    k record;
begin
    insert into slot_keys (key, rule_id, value, used_at)
    select distinct asked.key, asked.rule_id, asked.value, longhaul_now()
    from unnest(rules, names, vals) as asked (rule_id, key, value)
    where not exists (select from slot_keys s where s.key = asked.key)
    order by asked.key
    on conflict do nothing;
    for k in
        select s.key, s.made, r.max
        from slot_keys s join limit_rules r on r.id = s.rule_id
        where s.key = any (names) and s.made < r.max
        order by s.key
        for no key update of s
    loop
        insert into slots (key, number) select k.key, n from generate_series(1, k.max) n on conflict do nothing;
        update slot_keys set made = greatest(k.made, k.max), used_at = longhaul_now() where key = k.key;
    end loop;
    -- Somebody who has its row uses it, too.
    update slot_keys s set used_at = longhaul_now()
    from (
        select u.key from slot_keys u
        where u.key = any (names) and u.used_at < longhaul_now() - interval '10 minutes'
        for no key update skip locked
    ) used
    where s.key = used.key;
end
$$;
