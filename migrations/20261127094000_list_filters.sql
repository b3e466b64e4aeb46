-- Indexes of list filters. Each is in the order of the list; tests/it/store/list_plans.rs has a row for each filter.

create index if not exists executions_queue on executions (tenant_id, queue, id);
create index if not exists projects_status on projects (tenant_id, status, id);
-- The state of a delivery, as the list names it.
create index if not exists webhook_deliveries_state on webhook_deliveries (
    endpoint_id,
    (case when next_at is not null then 'waiting' when delivered_at is not null then 'delivered' else 'failed' end), id
);
create index if not exists audit_log_route on audit_log (tenant_id, route, id);
create index if not exists human_requests_kind on human_requests (tenant_id, kind, id);
create index if not exists human_requests_state on human_requests (tenant_id, kind, state, id);
create index if not exists human_requests_agent on human_requests (tenant_id, kind, agent_key, id);
create index if not exists memory_episodes_agent on memory_episodes (tenant_id, agent_key, id);
create index if not exists memory_episodes_scope on memory_episodes (tenant_id, scope, id);
create index if not exists quarantine_open on quarantine (tenant_id, execution_id)
    where released_as is null and withdrawn_at is null;
-- Otherwise a tenant's list reads the versions of all others.
create index if not exists definition_versions_owner on definition_versions (tenant_id, key, version desc)
    where removed_at is null;
create index if not exists agent_versions_owner on agent_versions (tenant_id, key, version desc)
    where removed_at is null;
create index if not exists skill_versions_owner on skill_versions (tenant_id, name, version desc)
    where removed_at is null;
