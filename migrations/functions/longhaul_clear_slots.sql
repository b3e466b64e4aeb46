-- Clears the slots of an execution that no worker holds any more, unless they were just handed to it so that it
-- can run; `was_held` tells a lease that ends from a wait that changes. Takes an execution that does not wait for a
-- slot out of its line. Locks slots in key order; a slot that another transaction has locked is left to the sweep
-- (`clear_leaked_slots`).
create or replace function longhaul_clear_slots(execution executions, was_held boolean) returns void
    language plpgsql volatile
    as $$
declare
    mine record;
begin
    delete from slot_waiters w
    where w.execution_id = execution.id and execution.wait_reason is distinct from 'concurrency_limit';
    if was_held or execution.wait_reason is distinct from 'worker' then
        delete from slots s using (
            select o.key, o.number
            from slots o join slot_keys k on k.key = o.key join limit_rules r on r.id = k.rule_id
            where o.execution_id = execution.id and o.number > r.max
            order by o.key
            for update of o skip locked
        ) above
        where s.key = above.key and s.number = above.number;
        -- A statement of its own, for a new snapshot: a slot over the limit may just have been moved below it.
        for mine in
            select s.key, s.number, r.max
            from slots s join slot_keys k on k.key = s.key join limit_rules r on r.id = k.rule_id
            where s.execution_id = execution.id
            order by s.key
            for update of s skip locked
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
end
$$;
