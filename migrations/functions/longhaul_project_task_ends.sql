-- Leaves word for a project that one of its executions ended, in the transaction that ends it. An insert, which waits
-- for no one: a batch ends executions of several projects, and two batches that locked their rows would deadlock.
create or replace function longhaul_project_task_ends() returns trigger
    language plpgsql
    as $$
begin
    -- A project that is gone would never take it.
    insert into project_signals (project_id, execution_id)
    select p.id, new.id from projects p where p.id = new.project_id;
    return null;
end
$$;

create or replace trigger executions_project after update of finished_at on executions
    for each row
    when (old.finished_at is null and new.finished_at is not null and new.project_id is not null)
    execute function longhaul_project_task_ends();
