-- Trees of executions: children as a primitive, and forks. What an execution is in its tree never changes; how many children it
-- has changes only in the statements that insert a child or end one.
alter table executions
    add column parent_id uuid,
    -- The topmost ancestor; null for an execution nobody started.
    add column root_id uuid,
    add column depth smallint not null default 0,
    -- Which of its parent's calls it carries out: the same call gives the same child.
    add column spawn_key bytea,
    -- The execution whose journal it continues, and the first step it does not share with it.
    add column forked_from uuid,
    add column forked_before int,
    add column children int not null default 0,
    add column open_children int not null default 0,
    add constraint child_has_a_place check (
        case when parent_id is null then root_id is null and depth = 0 and spawn_key is null
        else root_id is not null and depth > 0 and spawn_key is not null end
    ),
    add constraint fork_has_an_origin check ((forked_from is null) = (forked_before is null));

-- Immutable, and empty for executions outside of trees.
create unique index executions_children on executions (parent_id, spawn_key) where parent_id is not null;
create index executions_tree on executions (root_id, id) where root_id is not null;

-- Executions that ended, or are to end, and may leave open children behind: the work list of whoever cancels those.
create table ending_parents (
    execution_id uuid primary key
);

-- Locks an execution that another statement is about to change through a trigger: false when somebody else has it, so that a
-- batch leaves out the one row that would wait instead of stalling (core-rules 9). What is over needs no lock.
create function longhaul_try_lock(execution uuid) returns boolean
    language sql volatile
    as $$
        select exists (select from executions where id = execution and finished_at is null for no key update skip locked)
            or not exists (select from executions where id = execution and finished_at is null)
    $$;

-- The only way a child tells its parent that it is over (core-rules 3): in the transaction that ends it, whichever statement that
-- is. The last open child makes a parent runnable that waits for an event; a park that overlaps is caught by `wake_seq`.
-- Volatile, like everything that looks at rows it may have waited for: each statement in here has a snapshot of its own.
create function longhaul_child_ended(child executions) returns void
    language plpgsql volatile
    as $$
declare
    parent executions;
    is_woken boolean;
begin
    select * into parent from executions where id = child.parent_id and finished_at is null for no key update;
    if not found then
        return;
    end if;
    is_woken := parent.open_children = 1 and coalesce(parent.wait_reason, '') in ('children', 'approval', 'input');
    insert into events (execution_id, seq, at, kind, data)
    values (parent.id, parent.event_seq + 1, child.finished_at, 'child_ended', jsonb_strip_nulls(jsonb_build_object(
        'child_id', child.id, 'status', child.status, 'failure_code', child.failure_code, 'open_children', parent.open_children - 1
    )));
    if is_woken then
        perform longhaul_unpark(parent.id);
        insert into events (execution_id, seq, at, kind, data)
        values (parent.id, parent.event_seq + 2, child.finished_at, 'woken',
            jsonb_build_object('waited_for', parent.wait_reason));
    end if;
    update executions
    set open_children = parent.open_children - 1, wake_seq = parent.wake_seq + 1,
        event_seq = parent.event_seq + 1 + is_woken::int,
        wait_reason = case when is_woken then 'worker' else parent.wait_reason end,
        wait_until = case when not is_woken then parent.wait_until end
    where id = parent.id;
end
$$;

create function longhaul_execution_ends() returns trigger
    language plpgsql
    as $$
begin
    if new.children > 0 then
        insert into ending_parents (execution_id) values (new.id) on conflict do nothing;
    end if;
    if new.finished_at is not null and new.parent_id is not null then
        perform longhaul_child_ended(new);
    end if;
    return null;
end
$$;

-- A trigger, because many statements end executions, and none of them may forget this. It runs when such a statement is done
-- with its own rows, so a parent may be parked, recorded or ended by the very batch that ends its child. Executions outside of
-- trees never call the function.
create trigger executions_end after update of finished_at, cancel_requested_at on executions
    for each row
    when (
        (old.finished_at is null and new.finished_at is not null and (new.parent_id is not null or new.children > 0))
        or (old.cancel_requested_at is null and new.cancel_requested_at is not null and new.children > 0)
    )
    execute function longhaul_execution_ends();
