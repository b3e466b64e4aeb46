-- Marks the firing of an execution that ends, in the transaction that ends it; the sweep then tells the schedule. The
-- schedule is not locked here: a tick that cancels the run locks the schedule, then the execution.
create or replace function longhaul_scheduled_run_ends() returns trigger
    language plpgsql
    as $$
begin
    update schedule_firings set state = 'ended' where execution_id = new.id and state = 'running';
    return null;
end
$$;

create or replace trigger executions_schedule after update of finished_at on executions
    for each row
    when (old.finished_at is null and new.finished_at is not null and new.schedule_id is not null)
    execute function longhaul_scheduled_run_ends();
