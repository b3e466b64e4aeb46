-- Chunks whose embeddings are nearest to `query`, of documents whose metadata contains `having_all`. Exact: each
-- chunk is compared, bounded by the size limit of an index. The distance is the cosine distance, 1 where it is
-- undefined. Results show `document_id` in their metadata, so a filter by it works too.
create or replace function longhaul_nearest_chunks(of_index uuid, query text, having_all jsonb, most int)
    returns table (document_id text, ordinal int, text text, metadata jsonb, distance float8)
    language plpgsql stable
    as $$
begin
    return query
    select n.document_id, n.ordinal, n.text, n.metadata, case when n.distance = 'NaN' then 1 else n.distance end
    from (
        select c.document_id, c.ordinal, c.text, d.metadata, (c.embedding <=> query::vector)::float8 as distance
        from index_chunks c
        join index_documents d on d.index_id = c.index_id and d.id = c.document_id
        where c.index_id = of_index and c.embedding is not null
            and (d.metadata || jsonb_build_object('document_id', d.id)) @> having_all
    ) as n
    order by n.distance, n.document_id, n.ordinal
    limit most;
end
$$;
