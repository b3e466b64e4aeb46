-- Limit keys of which these executions need a slot. A value of over 200 characters is replaced by its SHA-256.
create or replace function longhaul_limits_of(ids uuid[])
    returns table (execution_id uuid, rule_id uuid, key text, value text)
    language sql stable
    as $$
        select needed.id, needed.rule_id, needed.rule_id || '=' || needed.prefix || told.value, told.value
        from (
            select e.id, r.id as rule_id, r.value as only_value, '' as prefix,
                longhaul_limit_value(r.expression, e.tenant_id, e.definition_key, e.agent_key,
                e.queue, e.metadata) as value
            from executions e
            join limit_rules r on r.source = 'definition' and r.subject = e.definition_key
                and r.tenant_id is not distinct from (select v.tenant_id from definition_versions v
                    where v.id = e.definition_version_id)
            where e.id = any (ids)
            union all
            select e.id, r.id, r.value, '',
                longhaul_limit_value(r.expression, e.tenant_id, e.definition_key, e.agent_key, e.queue, e.metadata)
            from executions e
            join limit_rules r on r.source = 'agent' and r.subject = e.agent_key
                and r.tenant_id is not distinct from (select v.tenant_id from agent_versions v
                    where v.id = e.agent_version_id)
            where e.id = any (ids)
            union all
            select e.id, r.id, r.value, '',
                longhaul_limit_value(r.expression, e.tenant_id, e.definition_key, e.agent_key, e.queue, e.metadata)
            from executions e
            join limit_rules r on r.source = 'operator' and r.subject = '' and r.tenant_id is null
            where e.id = any (ids)
            union all
            -- A branch of its own, so that no tenant's rules are compared with another's executions.
            select e.id, r.id, r.value, '',
                longhaul_limit_value(r.expression, e.tenant_id, e.definition_key, e.agent_key, e.queue, e.metadata)
            from executions e
            join limit_rules r on r.source = 'operator' and r.subject = '' and r.tenant_id = e.tenant_id
            where e.id = any (ids)
            union all
            select e.id, r.id, r.value, e.tenant_id || ' ', e.agent_key
            from executions e join limit_rules r on r.source = 'session'
            where e.id = any (ids) and e.session_id is not null
            union all
            select e.id, r.id, r.value, '', case r.subject when 'fleet' then 'fleet' else e.tenant_id::text end
            from executions e join limit_rules r on r.source = 'sub_agent'
            where e.id = any (ids) and e.parent_id is not null
        ) needed
        cross join lateral (
            select case when length(needed.value) <= 200 then needed.value
                else encode(sha256(convert_to(needed.value, 'UTF8')), 'hex') end as value
        ) told
        where needed.value is not null and (needed.only_value is null or needed.only_value = needed.value)
    $$;
