-- Decides which of these executions, locked by the calling claim and given in fair order, may run under the
-- concurrency limits. Returns only executions that have limits. One that cannot have its slots is parked. At most
-- `room` are admitted; the others take nothing.
--
-- One call examines a bounded number of keys, per tenant and in all (core-rules 22). Executions beyond that, and
-- those that need a slot which another transaction is making, are left as they are: `is_admitted` is null. The
-- first execution is always decided.
--
-- Lock order: executions (the caller's), keys in key order, slots with `skip locked`.
create or replace function longhaul_admit(candidates uuid[], room int)
    returns table (execution_id uuid, keys text[], is_admitted boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    most_keys constant int := 2000;
    most_keys_of_tenant constant int := 120;
    item record;
    needs record;
    decided uuid[];
    missing text;
    is_busy boolean;
    has_room boolean;
    seen int := 0;
    admitted int := 0;
begin
    select array_agg(l.execution_id) as ids, array_agg(l.rule_id) as rules, array_agg(l.key) as names,
        array_agg(l.value) as vals
    into needs
    from longhaul_limits_of(candidates) l;
    if needs.ids is null then
        return;
    end if;
    select array_agg(x.id) into decided
    from (
        select n.id, sum(n.keys) over (order by n.place) as of_all,
            sum(n.keys) over (partition by n.tenant_id order by n.place) as of_tenant,
            row_number() over (order by n.place) as nth
        from (
            select c.id, c.place, e.tenant_id, count(*) as keys
            from unnest(candidates) with ordinality as c (id, place)
            join unnest(needs.ids) as need (id) on need.id = c.id
            join executions e on e.id = c.id
            group by c.id, c.place, e.tenant_id
        ) n
    ) x
    where x.nth = 1 or x.of_all <= most_keys and x.of_tenant <= most_keys_of_tenant;
    perform longhaul_make_keys(array_agg(n.rule_id), array_agg(n.key), array_agg(n.value))
    from unnest(needs.ids, needs.rules, needs.names, needs.vals) as n (id, rule_id, key, value)
    where n.id = any (decided);
    for item in
        select e.id, e.tenant_id, e.priority, e.created_at, e.started_at, e.deadline_at, e.event_seq, c.place,
            needed.keys
        from unnest(candidates) with ordinality as c (id, place)
        join (
            select n.id, array_agg(n.key order by n.key) as keys
                from unnest(needs.ids, needs.names) as n (id, key) group by n.id
        ) needed on needed.id = c.id
        join executions e on e.id = c.id
        order by c.place
    loop
        has_room := admitted + (item.place - 1 - seen) < room;
        seen := seen + 1;
        if not item.id = any (decided) then
            return query select item.id, item.keys, null::boolean;
            continue;
        end if;
        missing := null;
        is_busy := false;
        if exists (
            select from unnest(item.keys) as k (key)
            where not exists (select from slots s where s.key = k.key and s.execution_id = item.id)
        ) then
            -- An execution does not overtake those already in line.
            select w.key into missing from slot_waiters w where w.key = any (item.keys) limit 1;
            if missing is null and has_room then
                select t.missing, t.is_busy into missing, is_busy
                    from longhaul_take_slots(item.id, item.tenant_id, item.keys) t;
            elsif missing is null then
                select k.key into missing from unnest(item.keys) as k (key) where not longhaul_has_free_slots(k.key)
                    limit 1;
            end if;
        end if;
        if is_busy then
            return query select item.id, item.keys, null::boolean;
        elsif missing is not null then
            insert into parked (execution_id, tenant_id, wait_reason, wait_until)
            values (item.id, item.tenant_id, 'concurrency_limit', item.deadline_at)
            on conflict (execution_id) do update set wait_reason = excluded.wait_reason,
                wait_until = excluded.wait_until;
            insert into slot_waiters (execution_id, tenant_id, keys, key, is_new, rank, since)
            values (item.id, item.tenant_id, item.keys, missing, item.started_at is null,
                longhaul_claim_rank(item.created_at, item.priority), longhaul_now());
            insert into events (execution_id, seq, at, kind, data)
            values (item.id, item.event_seq + 1, longhaul_now(), 'parked',
                jsonb_build_object('wait_reason', 'concurrency_limit'));
            update executions
            set wait_reason = 'concurrency_limit', wait_until = null, event_seq = item.event_seq + 1,
                slot_keys = item.keys
            where id = item.id;
            return query select item.id, item.keys, false;
        elsif has_room then
            admitted := admitted + 1;
            return query select item.id, item.keys, true;
        end if;
    end loop;
end
$$;
