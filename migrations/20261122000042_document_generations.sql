-- Generations of documents whose chunks are in another store (docs/adr/0017-retrieval.md). That store and Postgres have no transaction in
-- common. So each writer of a document takes a number here, marks its chunks there with it, removes those of lower ones, and only then
-- says here what the document is made from, if no other writer has come after it.

-- Of the index and not of the document: what is removed and put again must not get a number that an earlier writer still holds.
alter table indexes add column generation bigint not null default 0;

-- Of whoever wrote or removed it last. Until that is done content_hash is empty, so that whatever is put next is put anew.
alter table index_documents add column generation bigint not null default 0;

-- Begins to put a document: its place and its size are taken, and its number is drawn. Otherwise says why not (gone, model, dimension,
-- full), and has changed nothing.
create function longhaul_begin_document(
    of_index uuid, document text, size int, meta jsonb, pieces int, width int, of_model text, most int,
    out outcome text, out drawn bigint
)
    language plpgsql volatile
    as $$
declare
    i indexes;
    before int;
begin
    -- One writer at a time for each index, so that its counts and its limit hold.
    select * into i from indexes x where x.id = of_index for no key update;
    if not found then
        outcome := 'gone';
        return;
    end if;
    if i.model <> of_model then
        outcome := 'model';
        return;
    end if;
    if i.dimension <> width then
        outcome := 'dimension';
        return;
    end if;
    select d.chunks into before from index_documents d where d.index_id = of_index and d.id = document;
    if i.chunks - coalesce(before, 0) + pieces > most then
        outcome := 'full';
        return;
    end if;
    outcome := 'begun';
    drawn := i.generation + 1;
    insert into index_documents (index_id, id, content_hash, bytes, chunks, metadata, created_at, updated_at, generation)
    values (of_index, document, '', size, pieces, meta, longhaul_now(), longhaul_now(), drawn)
    on conflict (index_id, id) do update
    set content_hash = excluded.content_hash, bytes = excluded.bytes, chunks = excluded.chunks, metadata = excluded.metadata,
        updated_at = excluded.updated_at, generation = excluded.generation;
    update indexes x
    set model = coalesce(x.model, of_model), dimension = coalesce(x.dimension, width), updated_at = longhaul_now(), generation = drawn,
        chunks = x.chunks - coalesce(before, 0) + pieces, documents = x.documents + case when before is null then 1 else 0 end
    where x.id = of_index;
end
$$;

-- Begins to remove a document. It is gone when its chunks are; until then putting it stores it anew. Nothing is drawn when there is no
-- such index.
create function longhaul_begin_removal(of_index uuid, document text, out drawn bigint, out was_there boolean)
    language plpgsql volatile
    as $$
begin
    -- A statement of its own: the next one must see what a writer has committed while this one waited for it.
    update indexes x set generation = x.generation + 1 where x.id = of_index returning x.generation into drawn;
    update index_documents d set content_hash = '', generation = drawn where d.index_id = of_index and d.id = document;
    was_there := found;
end
$$;

-- As before, and a filter for document_id, which results show in their metadata, finds that document.
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
