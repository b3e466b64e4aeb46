-- ALL that the end of an execution does in its transaction (docs/design/end.md), in the order of its locks:
--
--   1 slots     longhaul_clear_slots    a limit never counts an execution that no worker holds (a park, too)
--   2 budget    longhaul_settle_rest    no reservation outlives its execution
--   3 children  ending_parents          open descendants are cancelled (on a request to cancel, too)
--   4 parent    longhaul_child_ended    a wait for this child ends once
--   5 session   longhaul_pass_turn      the next message gets the turn
--   6 outbox    ends                    one row, if a reaction follows; see crates/worker/src/runtime/reactions/
--
-- Nothing else may be read or written here: no constraint, cast or lock of another table decides over a result
-- (core-rules 27). A row of a session that another transaction has locked is left to the reaction `session`.
-- A trigger, because five statements end executions, and each must do this. It runs after the statement's own
-- changes, so a parent may be parked, recorded or ended by the batch that ends its child.
create or replace function longhaul_execution_over() returns trigger
    language plpgsql volatile
    as $$
declare
    is_over constant boolean := old.finished_at is null and new.finished_at is not null;
    told_as constant text := case when new.status = 'FINISHED' then 'execution.finished' else 'execution.failed' end;
    followers text[];
begin
    if new.slot_keys is not null and new.worker_id is null
        and (old.worker_id is not null or new.wait_reason is distinct from old.wait_reason)
    then
        perform longhaul_clear_slots(new, old.worker_id is not null);
    end if;
    if is_over and new.has_budget then
        perform longhaul_settle_rest(new.id);
    end if;
    if new.children > 0
        and (is_over or old.cancel_requested_at is null and new.cancel_requested_at is not null)
    then
        insert into ending_parents (execution_id) values (new.id) on conflict do nothing;
    end if;
    if not is_over then
        return null;
    end if;
    if new.children > 0 then
        delete from child_waits where parent_id = new.id;
    end if;
    if new.parent_id is not null then
        perform longhaul_child_ended(new);
    end if;
    if new.session_id is not null and not longhaul_pass_turn(new.id, new.session_id) then
        followers := array['session'];
    end if;
    if new.project_id is not null then
        followers := followers || 'project'::text;
    end if;
    if new.schedule_id is not null then
        followers := followers || 'schedule'::text;
    end if;
    if new.has_memory then
        followers := followers || 'memory'::text;
    end if;
    -- Of a tree, the root.
    if new.parent_id is null
        and exists (select from end_subscriptions s where s.tenant_id = new.tenant_id and s.event = told_as)
    then
        followers := followers || 'webhook'::text;
    end if;
    if followers is not null then
        insert into ends (tenant_id, execution_id, event, project_id, occurred_at, reactions, next_at)
        values (new.tenant_id, new.id, told_as, new.project_id, new.finished_at, followers, new.finished_at);
    end if;
    return null;
end
$$;

drop trigger if exists executions_slots on executions;
drop trigger if exists executions_settle on executions;
drop trigger if exists executions_end on executions;
drop trigger if exists executions_session on executions;
drop trigger if exists executions_schedule on executions;
drop trigger if exists executions_project on executions;
drop trigger if exists executions_webhooks on executions;
drop function if exists longhaul_clear_slots();
drop function if exists longhaul_settle_rest();
drop function if exists longhaul_execution_ends();
drop function if exists longhaul_session_turn_ends();
drop function if exists longhaul_scheduled_run_ends();
drop function if exists longhaul_project_task_ends();

create or replace trigger executions_over
    after update of worker_id, wait_reason, cancel_requested_at, finished_at on executions
    for each row
    when (
        old.finished_at is null and new.finished_at is not null
        or new.slot_keys is not null and new.worker_id is null
            and (old.worker_id is not null or new.wait_reason is distinct from old.wait_reason)
        or new.children > 0 and old.cancel_requested_at is null and new.cancel_requested_at is not null
    )
    execute function longhaul_execution_over();
