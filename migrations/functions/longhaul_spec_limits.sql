-- Copies the concurrency limits of the newest version to `limit_rules` whenever a version is added or removed.
-- They apply to executions of all versions.
create or replace function longhaul_spec_limits() returns trigger
    language plpgsql
    as $$
declare
    kind text := case tg_table_name when 'definition_versions' then 'definition' else 'agent' end;
    wanted json;
begin
    if kind = 'definition' then
        select v.spec -> 'concurrency' into wanted from definition_versions v
        where v.key = new.key and v.tenant_id is not distinct from new.tenant_id and v.removed_at is null
        order by v.version desc limit 1;
    else
        select v.spec -> 'concurrency' into wanted from agent_versions v
        where v.key = new.key and v.tenant_id is not distinct from new.tenant_id and v.removed_at is null
        order by v.version desc limit 1;
    end if;
    if wanted is null or json_typeof(wanted) <> 'array' then
        wanted := '[]';
    end if;
    delete from limit_rules r
    where r.source = kind and r.subject = new.key and r.tenant_id is not distinct from new.tenant_id
        and r.expression not in (select w ->> 'key' from json_array_elements(wanted) w);
    insert into limit_rules as r (source, tenant_id, subject, expression, max, changed_at)
    select distinct on (w ->> 'key') kind, new.tenant_id, new.key, w ->> 'key', (w ->> 'limit')::int, longhaul_now()
    from json_array_elements(wanted) w
    on conflict on constraint limit_rules_once do update set max = excluded.max, changed_at = excluded.changed_at
    where r.max <> excluded.max;
    return null;
end
$$;

create or replace trigger definition_versions_limits after insert or update of removed_at on definition_versions
    for each row execute function longhaul_spec_limits();

create or replace trigger agent_versions_limits after insert or update of removed_at on agent_versions
    for each row execute function longhaul_spec_limits();
