-- Wakes those of these executions that no other transaction has locked, as `longhaul_wake` does (core-rules 3),
-- and returns them; `is_over` marks executions that have ended. Locked ones are left for a later look. Locks in
-- id order.
create or replace function longhaul_wake_all(ids uuid[], reason text) returns table (id uuid, is_over boolean)
    language plpgsql volatile
    as $$
#variable_conflict use_column
declare
    free uuid[];
    parked_ids uuid[];
begin
    select array_agg(e.id), array_agg(e.id) filter (where e.wait_reason = reason) into free, parked_ids
    from (
        select x.id, x.wait_reason from executions x
        where x.id = any (ids) and x.finished_at is null
        order by x.id
        for no key update skip locked
    ) e;
    delete from parked p where p.execution_id = any (parked_ids);
    insert into events (execution_id, seq, at, kind, data)
    select e.id, e.event_seq + 1, longhaul_now(), 'woken', jsonb_build_object('waited_for', reason)
    from executions e where e.id = any (parked_ids);
    update executions e
    set wake_seq = e.wake_seq + 1, event_seq = e.event_seq + (e.wait_reason is not distinct from reason)::int,
        wait_reason = case when e.wait_reason = reason then 'worker' else e.wait_reason end,
        wait_until = case when e.wait_reason is distinct from reason then e.wait_until end
    where e.id = any (free);
    return query
    select f.id, false from unnest(free) as f (id)
    union all
    select a.id, true from unnest(ids) as a (id)
    where not exists (select from executions e where e.id = a.id and e.finished_at is null);
end
$$;
