-- Which of these executions, locked by the calling claim and given in fair order, may run as far as limits go; only
-- those that have limits are told. What cannot have its slots is parked. At most `room` are wanted: the others take
-- nothing.
create or replace function longhaul_admit(candidates uuid[], room int) returns table (execution_id uuid, keys text[], is_admitted boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    item record;
    ids uuid[];
    rules uuid[];
    names text[];
    vals text[];
    missing text;
    has_room boolean;
    seen int := 0;
    admitted int := 0;
begin
    select array_agg(l.execution_id), array_agg(l.rule_id), array_agg(l.key), array_agg(l.value)
    into ids, rules, names, vals
    from longhaul_limits_of(candidates) l;
    if ids is null then
        return;
    end if;
    perform longhaul_make_slots(rules, names, vals);
    for item in
        select e.id, e.tenant_id, e.priority, e.created_at, e.started_at, e.deadline_at, e.event_seq, c.place, needed.keys
        from unnest(candidates) with ordinality as c (id, place)
        join (
            select n.id, array_agg(n.key order by n.key) as keys from unnest(ids, names) as n (id, key) group by n.id
        ) needed on needed.id = c.id
        join executions e on e.id = c.id
        order by c.place
    loop
        has_room := admitted + (item.place - 1 - seen) < room;
        seen := seen + 1;
        missing := null;
        if exists (
            select from unnest(item.keys) as k (key)
            where not exists (select from slots s where s.key = k.key and s.execution_id = item.id)
        ) then
            -- Nobody overtakes a line.
            select w.key into missing from slot_waiters w where w.key = any (item.keys) limit 1;
            if missing is null and has_room then
                missing := longhaul_take_slots(item.id, item.tenant_id, item.keys);
            elsif missing is null then
                select k.key into missing from unnest(item.keys) as k (key)
                where not exists (select from slots s where s.key = k.key and s.execution_id is null)
                limit 1;
            end if;
        end if;
        if missing is not null then
            insert into parked (execution_id, tenant_id, wait_reason, wait_until)
            values (item.id, item.tenant_id, 'concurrency_limit', item.deadline_at)
            on conflict (execution_id) do update set wait_reason = excluded.wait_reason, wait_until = excluded.wait_until;
            insert into slot_waiters (execution_id, tenant_id, keys, key, is_new, rank, since)
            values (item.id, item.tenant_id, item.keys, missing, item.started_at is null,
                longhaul_claim_rank(item.created_at, item.priority), longhaul_now());
            insert into events (execution_id, seq, at, kind, data)
            values (item.id, item.event_seq + 1, longhaul_now(), 'parked', jsonb_build_object('wait_reason', 'concurrency_limit'));
            update executions
            set wait_reason = 'concurrency_limit', wait_until = null, event_seq = item.event_seq + 1, slot_keys = item.keys
            where id = item.id;
            return query select item.id, item.keys, false;
        elsif has_room then
            admitted := admitted + 1;
            return query select item.id, item.keys, true;
        end if;
    end loop;
end
$$;
