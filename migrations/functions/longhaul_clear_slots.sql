-- Clears the slots of an execution that no worker holds any more, unless they were just handed to it so that it
-- can run. Takes an execution that does not wait for a slot out of its line. Locks slots in key order.
create or replace function longhaul_clear_slots() returns trigger
    language plpgsql
    as $$
declare
    mine record;
begin
    delete from slot_waiters where execution_id = new.id and new.wait_reason is distinct from 'concurrency_limit';
    if old.worker_id is not null or new.wait_reason is distinct from 'worker' then
        delete from slots s using slot_keys k, limit_rules r
        where s.execution_id = new.id and k.key = s.key and r.id = k.rule_id and s.number > r.max;
        -- A statement of its own, for a new snapshot: a slot over the limit may just have been moved below it.
        for mine in
            select s.key, s.number, r.max
            from slots s join slot_keys k on k.key = s.key join limit_rules r on r.id = k.rule_id
            where s.execution_id = new.id
            order by s.key
            for update of s
        loop
            -- The holder of a slot above a reduced limit moves into this slot, which therefore does not become
            -- free.
            with over as materialized (
                select s.* from slots s
                where s.key = mine.key and s.number > mine.max and s.execution_id is not null
                limit 1
                for update skip locked
            ),
            gone as (
                delete from slots s using over where s.key = over.key and s.number = over.number
            )
            update slots s
            set execution_id = (select over.execution_id from over), tenant_id = (select over.tenant_id from over),
                since = (select over.since from over)
            where s.key = mine.key and s.number = mine.number;
        end loop;
    end if;
    return null;
end
$$;

create or replace trigger executions_slots after update of worker_id, wait_reason on executions
    for each row
    when (
        new.slot_keys is not null and new.worker_id is null
        and (old.worker_id is not null or new.wait_reason is distinct from old.wait_reason)
    )
    execute function longhaul_clear_slots();
