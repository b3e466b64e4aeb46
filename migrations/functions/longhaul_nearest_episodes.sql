-- Episodes of a place whose embeddings by `model` are nearest to `query`. Exact: each is compared, bounded by the
-- number of episodes of a place. The distance is the cosine distance, 1 where it is undefined. Nothing without
-- pgvector.
create or replace function longhaul_nearest_episodes(
    of_tenant uuid, of_agent text, of_scope text, model text, query text, most int
) returns table (id uuid, content text, distance float8)
    language plpgsql stable
    as $$
begin
    if not exists (
        select from pg_attribute where attrelid = 'memory_episodes'::regclass and attname = 'embedding'
            and not attisdropped
    ) then
        return;
    end if;
    return query
    select n.id, n.content, case when n.distance = 'NaN' then 1 else n.distance end
    from (
        select m.id, m.content, (m.embedding <=> query::vector)::float8 as distance
        from memory_episodes m
        where m.tenant_id = of_tenant and m.agent_key = of_agent and m.scope = of_scope and m.embedding_model = model
            and vector_dims(m.embedding) = vector_dims(query::vector)
    ) as n
    order by 3, 1
    limit most;
end
$$;
