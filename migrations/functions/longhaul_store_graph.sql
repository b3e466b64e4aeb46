-- Stores entities and relations that a model found in the episodes of an update. An entity comes from the episodes
-- that have its name; a relation from those of its exchanges that have both names, so that a wrong number gives it no
-- source. What has no source is not stored, nor is more than `most` of each in a place.
create or replace function longhaul_store_graph(
    of_update uuid, entities memory_entity[], relations memory_relation[], most int
) returns void
    language plpgsql volatile
    as $$
declare
    place record;
    room int;
begin
    -- An episode that is being forgotten is waited for.
    perform from memory_episodes m where m.written_by = of_update order by m.id for share;
    select m.tenant_id, m.agent_key, m.scope into place from memory_episodes m where m.written_by = of_update limit 1;
    if not found then
        return;
    end if;

    select most - count(*) into room from memory_entities e
    where e.tenant_id = place.tenant_id and e.agent_key = place.agent_key and e.scope = place.scope;
    insert into memory_entities (id, tenant_id, agent_key, scope, name, name_key, kind)
    select longhaul_uuid(), place.tenant_id, place.agent_key, place.scope, n.name, lower(n.name), n.kind
    from (select distinct on (lower(e.name)) e.name, e.kind from unnest(entities) as e order by lower(e.name)) n
    where exists (
        select from memory_episodes m where m.written_by = of_update and position(lower(n.name) in lower(m.content)) > 0
    )
    limit greatest(room, 0)
    on conflict (tenant_id, agent_key, scope, name_key) do nothing;

    -- One that is being removed is waited for.
    perform from memory_entities e
    where e.tenant_id = place.tenant_id and e.agent_key = place.agent_key and e.scope = place.scope
        and e.name_key in (select lower(n.name) from unnest(entities) as n)
    order by e.id
    for key share;
    insert into memory_entity_sources (episode_id, entity_id)
    select m.id, e.id
    from memory_entities e join memory_episodes m on position(e.name_key in lower(m.content)) > 0
    where e.tenant_id = place.tenant_id and e.agent_key = place.agent_key and e.scope = place.scope
        and e.name_key in (select lower(n.name) from unnest(entities) as n) and m.written_by = of_update
    on conflict do nothing;

    select most - count(*) into room
    from memory_relations r join memory_entities e on e.id = r.subject_id
    where e.tenant_id = place.tenant_id and e.agent_key = place.agent_key and e.scope = place.scope;
    with said as materialized (
        select s.id as subject_id, r.predicate, o.id as object_id, m.id as episode_id
        from unnest(relations) as r
        join memory_entities s on s.tenant_id = place.tenant_id and s.agent_key = place.agent_key
            and s.scope = place.scope and s.name_key = lower(r.subject)
        join memory_entities o on o.tenant_id = place.tenant_id and o.agent_key = place.agent_key
            and o.scope = place.scope and o.name_key = lower(r.object)
        join memory_episodes m on m.written_by = of_update and m.exchange = any (r.exchanges)
            and position(s.name_key in lower(m.content)) > 0 and position(o.name_key in lower(m.content)) > 0
    ),
    stored as (
        insert into memory_relations as r (id, subject_id, predicate, object_id)
        select longhaul_uuid(), d.subject_id, d.predicate, d.object_id
        from (select distinct subject_id, predicate, object_id from said) d
        limit greatest(room, 0)
        -- Its id is returned, and nothing changes.
        on conflict (subject_id, predicate, object_id) do update set predicate = r.predicate
        returning r.id, r.subject_id, r.predicate, r.object_id
    )
    insert into memory_relation_sources (episode_id, relation_id)
    select distinct said.episode_id, stored.id from said join stored using (subject_id, predicate, object_id)
    on conflict do nothing;
end
$$;
