-- Gives the free slots of these keys to the executions that wait for them and makes those runnable, at most
-- `portion` in all. Returns them; and, without an execution, the keys whose lines received an execution that
-- found another key full: the caller calls again with those.
--
-- Lock order: the key's row, in key order; executions and slots with `skip locked`. Every statement sees what was
-- committed before the key's lock was acquired: if a slot is freed and an execution parks at the same time, the
-- later commit is followed by a call that sees both.
create or replace function longhaul_hand_over(names text[], portion int)
    returns table (id uuid, queue text, moved_to text)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    name text;
    w slot_waiters;
    e executions;
    missing text;
    granted int := 0;
    passed uuid[];
begin
    for name in select distinct n.key from unnest(names) as n (key) order by 1 loop
        -- An execution that joins the line from now on is followed by a call of its own, which sees slots freed
        -- before this.
        continue when not exists (select from slot_waiters x where x.key = name);
        perform from slot_keys k where k.key = name for no key update;
        continue when not found;
        passed := '{}';
        loop
            exit when granted >= portion;
            exit when not longhaul_has_free_slots(name);
            -- The tenant that holds the fewest slots, then the one with the least recent usage; within a tenant,
            -- started before new.
            with recursive tenants (tenant_id) as (
                (select x.tenant_id from slot_waiters x where x.key = name order by x.tenant_id limit 1)
                union all
                select (
                    select x.tenant_id from slot_waiters x where x.key = name and x.tenant_id > t.tenant_id
                    order by x.tenant_id limit 1
                )
                from tenants t where t.tenant_id is not null
            ),
            some_tenants as materialized (
                select t.tenant_id from tenants t where t.tenant_id is not null limit 200
            )
            select head.* into w
            from some_tenants t
            cross join lateral (
                select * from slot_waiters x
                where x.key = name and x.tenant_id = t.tenant_id and x.execution_id <> all (passed)
                order by x.is_new, x.rank, x.execution_id
                limit 1
            ) head
            order by
                case when (select count(*) from some_tenants) > 1 then
                    (select count(*) from slots s where s.key = name and s.tenant_id = t.tenant_id
                        and s.execution_id is not null)
                end,
                coalesce((
                    select u.tokens * power(0.5, greatest(extract(epoch from longhaul_now() - u.at), 0) / 300)
                    from tenant_usage u where u.tenant_id = t.tenant_id
                ), 0),
                head.is_new, head.rank, head.execution_id
            limit 1;
            exit when not found;
            select * into e from executions x
            where x.id = w.execution_id and x.wait_reason = 'concurrency_limit' and x.cancel_requested_at is null
            for no key update skip locked;
            if not found then
                -- Another transaction holds or ends it.
                passed := passed || w.execution_id;
                continue;
            end if;
            select t.missing into missing from longhaul_take_slots(e.id, e.tenant_id, w.keys) t;
            if missing is null then
                perform longhaul_unpark(e.id);
                insert into events (execution_id, seq, at, kind, data)
                values (e.id, e.event_seq + 1, longhaul_now(), 'woken',
                    jsonb_build_object('waited_for', 'concurrency_limit'));
                -- A trigger takes it out of the line as well.
                update executions
                set wait_reason = 'worker', wait_until = null, wake_seq = e.wake_seq + 1, event_seq = e.event_seq + 1
                where id = e.id;
                granted := granted + 1;
                return query select e.id, e.queue, null::text;
            elsif missing = name then
                -- Another transaction is taking the free slot.
                exit;
            else
                update slot_waiters set key = missing where execution_id = e.id;
                return query select null::uuid, null::text, missing;
            end if;
        end loop;
    end loop;
end
$$;
