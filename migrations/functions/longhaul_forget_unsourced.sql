-- Removes those of these entities and relations that come from no episode any more.
create or replace function longhaul_forget_unsourced(entities uuid[], relations uuid[]) returns void
    language plpgsql volatile
    as $$
begin
    delete from memory_relations r
    where r.id = any (relations) and not exists (select from memory_relation_sources s where s.relation_id = r.id);
    delete from memory_entities e
    where e.id = any (entities) and not exists (select from memory_entity_sources s where s.entity_id = e.id);
end
$$;
