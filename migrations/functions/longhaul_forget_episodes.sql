-- Removes episodes of a tenant, and entities and relations that come from no other episode. The updates that wrote
-- them are void: their journals hold copies. Returns the number of episodes.
create or replace function longhaul_forget_episodes(of_tenant uuid, ids uuid[]) returns int
    language plpgsql volatile
    as $$
declare
    entities uuid[];
    relations uuid[];
    gone int;
begin
    -- Under the locks of their episodes, no source is added.
    perform from memory_episodes m where m.tenant_id = of_tenant and m.id = any (ids) order by m.id for update;
    update memory_updates u set is_void = true
    from memory_episodes m
    where m.tenant_id = of_tenant and m.id = any (ids) and u.execution_id = m.written_by and not u.is_void;
    select array_agg(distinct s.entity_id) into entities
    from memory_entity_sources s join memory_episodes m on m.id = s.episode_id
    where m.tenant_id = of_tenant and m.id = any (ids);
    select array_agg(distinct s.relation_id) into relations
    from memory_relation_sources s join memory_episodes m on m.id = s.episode_id
    where m.tenant_id = of_tenant and m.id = any (ids);
    delete from memory_episodes m where m.tenant_id = of_tenant and m.id = any (ids);
    get diagnostics gone = row_count;
    perform longhaul_forget_unsourced(entities, relations);
    return gone;
end
$$;
