-- Records that an execution ended or is to be cancelled, for its parent and its descendants.
create or replace function longhaul_execution_ends() returns trigger
    language plpgsql
    as $$
begin
    if new.children > 0 then
        insert into ending_parents (execution_id) values (new.id) on conflict do nothing;
        delete from child_waits where parent_id = new.id and new.finished_at is not null;
    end if;
    if new.finished_at is not null and new.parent_id is not null then
        perform longhaul_child_ended(new);
    end if;
    return null;
end
$$;

-- A trigger, because many statements end executions, and each must do this. It runs after the statement's own
-- changes, so a parent may be parked, recorded or ended by the batch that ends its child. Executions outside
-- trees never call it.
create or replace trigger executions_end after update of finished_at, cancel_requested_at on executions
    for each row
    when (
        (old.finished_at is null and new.finished_at is not null and (new.parent_id is not null or new.children > 0))
        or (old.cancel_requested_at is null and new.cancel_requested_at is not null and new.children > 0)
    )
    execute function longhaul_execution_ends();
