-- Stores what the webhooks of a tenant are told of: the end of an execution, a request to people or to the caller, a
-- quarantined execution. Triggers, because many statements end executions, and each must do this.
create or replace function longhaul_webhook_events() returns trigger
    language plpgsql volatile
    as $$
declare
    event text;
    execution uuid;
    request uuid;
begin
    case tg_table_name
        when 'executions' then
            execution := new.id;
            event := case when new.status = 'FINISHED' then 'execution.finished' else 'execution.failed' end;
        when 'quarantine' then
            execution := new.execution_id;
            event := 'execution.quarantined';
        else
            execution := new.execution_id;
            request := new.id;
            event := case new.kind
                when 'approval' then 'approval.requested'
                when 'question' then 'question.asked'
                else 'tool_call.requested'
            end;
    end case;
    insert into webhook_deliveries (id, endpoint_id, type, execution_id, request_id, occurred_at, next_at, expires_at)
    select longhaul_uuid(), w.id, event, execution, request, t.now, t.now, t.now + interval '72 hours'
    from webhook_endpoints w, lateral (select longhaul_now() as now) t
    where w.tenant_id = new.tenant_id and w.disabled_at is null and event = any(w.types);
    return null;
end
$$;

create or replace trigger executions_webhooks after update of finished_at on executions
    for each row
    -- Of a tree, the root.
    when (old.finished_at is null and new.finished_at is not null and new.parent_id is null)
    execute function longhaul_webhook_events();

create or replace trigger quarantine_webhooks after insert on quarantine
    for each row execute function longhaul_webhook_events();

create or replace trigger human_requests_webhooks after insert on human_requests
    for each row execute function longhaul_webhook_events();
