-- Replaces a document as a whole. Returns 'stored', or why not: gone, model, dimension, full, no_vectors. Without
-- `texts` the chunks are in another store; without `vectors` they are found by words alone.
create or replace function longhaul_put_document(
    of_index uuid, document new_document, texts text[], vectors text[], most int
) returns text
    language plpgsql volatile
    as $$
declare
    i indexes;
    before int;
begin
    -- Serialises the writers of an index, so that its counts and its limit are exact.
    select * into i from indexes x where x.id = of_index for no key update;
    if not found then
        return 'gone';
    end if;
    if i.model <> document.model then
        return 'model';
    end if;
    if i.dimension <> document.dimension then
        return 'dimension';
    end if;
    select d.chunks into before from index_documents d where d.index_id = of_index and d.id = document.id;
    if i.chunks - coalesce(before, 0) + document.chunks > most then
        return 'full';
    end if;
    if vectors is not null and not longhaul_enable_vectors() then
        return 'no_vectors';
    end if;
    delete from index_chunks c where c.index_id = of_index and c.document_id = document.id;
    insert into index_documents (index_id, id, content_hash, bytes, chunks, metadata, created_at, updated_at)
    values (of_index, document.id, document.content_hash, document.bytes, document.chunks, document.metadata,
        longhaul_now(), longhaul_now())
    on conflict (index_id, id) do update
    set content_hash = excluded.content_hash, bytes = excluded.bytes, chunks = excluded.chunks,
        metadata = excluded.metadata,
        updated_at = excluded.updated_at;
    if vectors is not null then
        insert into index_chunks (index_id, document_id, ordinal, text, embedding)
        select of_index, document.id, p.ordinal, p.text, p.embedding::vector
        from unnest(texts, vectors) with ordinality as p (text, embedding, ordinal);
    elsif texts is not null then
        insert into index_chunks (index_id, document_id, ordinal, text)
        select of_index, document.id, p.ordinal, p.text
        from unnest(texts) with ordinality as p (text, ordinal);
    end if;
    update indexes x
    set model = coalesce(x.model, document.model), dimension = coalesce(x.dimension, document.dimension),
        updated_at = longhaul_now(),
        chunks = x.chunks - coalesce(before, 0) + document.chunks,
        documents = x.documents + case when before is null then 1 else 0 end
    where x.id = of_index;
    return 'stored';
end
$$;
