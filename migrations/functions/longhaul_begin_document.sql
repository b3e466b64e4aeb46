-- Begins to put a document whose chunks are in another store: stores its size and draws its number. Otherwise
-- returns why not (gone, model, dimension, full), and changes nothing.
create or replace function longhaul_begin_document(
    of_index uuid, document text, size int, meta jsonb, pieces int, width int, of_model text, most int,
    out outcome text, out drawn bigint
)
    language plpgsql volatile
    as $$
declare
    i indexes;
    before int;
begin
    -- Serialises the writers of an index, so that its counts and its limit are exact.
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
    insert into index_documents (index_id, id, content_hash, bytes, chunks, metadata, created_at, updated_at,
        generation)
    values (of_index, document, '', size, pieces, meta, longhaul_now(), longhaul_now(), drawn)
    on conflict (index_id, id) do update
    set content_hash = excluded.content_hash, bytes = excluded.bytes, chunks = excluded.chunks,
        metadata = excluded.metadata,
        updated_at = excluded.updated_at, generation = excluded.generation;
    update indexes x
    set model = coalesce(x.model, of_model), dimension = coalesce(x.dimension, width), updated_at = longhaul_now(),
        generation = drawn,
        chunks = x.chunks - coalesce(before, 0) + pieces,
        documents = x.documents + case when before is null then 1 else 0 end
    where x.id = of_index;
end
$$;
