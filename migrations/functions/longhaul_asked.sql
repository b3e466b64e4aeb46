-- Leaves a row in `ends` for a request to people or to the caller, and for a quarantined execution, if the tenant wants
-- to be told. As in `longhaul_execution_over`, nothing else is read: a notification never decides over an execution.
create or replace function longhaul_asked() returns trigger
    language plpgsql volatile
    as $$
declare
    told_as text := 'execution.quarantined';
    request uuid;
begin
    if tg_table_name = 'human_requests' then
        request := new.id;
        told_as := case new.kind
            when 'approval' then 'approval.requested'
            when 'question' then 'question.asked'
            else 'tool_call.requested'
        end;
    end if;
    insert into ends (tenant_id, execution_id, event, request_id, occurred_at, reactions, next_at)
    select new.tenant_id, new.execution_id, s.event, request, t.now, '{webhook}', t.now
    from end_subscriptions s, (select longhaul_now() as now) t
    where s.tenant_id = new.tenant_id and s.event = told_as;
    return null;
end
$$;

drop trigger if exists quarantine_webhooks on quarantine;
drop trigger if exists human_requests_webhooks on human_requests;
drop function if exists longhaul_webhook_events();

create or replace trigger quarantine_asked after insert on quarantine
    for each row execute function longhaul_asked();

create or replace trigger human_requests_asked after insert on human_requests
    for each row execute function longhaul_asked();
