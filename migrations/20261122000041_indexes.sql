-- Indexes of documents that executions search (docs/adr/0017-retrieval.md). A tenant's own; nobody else sees them.

create table indexes (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    name text not null check (name ~ '^[a-z0-9][a-z0-9._-]{0,127}$'),
    -- Where the chunks are: pgvector (here), qdrant_http or weaviate_http.
    store text not null,
    -- Of the first document that was embedded; all others are embedded by the same.
    model text,
    dimension int check (dimension > 0),
    documents int not null default 0,
    chunks int not null default 0,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    unique (tenant_id, name)
);

create table index_documents (
    index_id uuid not null references indexes (id) on delete cascade,
    id text not null check (char_length(id) between 1 and 256),
    -- Of everything that its chunks and embeddings are made from: the same again changes nothing.
    content_hash bytea not null,
    bytes int not null,
    chunks int not null,
    metadata jsonb not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (index_id, id)
);

-- Chunks of indexes whose store is pgvector. The column `embedding` comes with the extension.
create table index_chunks (
    index_id uuid not null,
    document_id text not null,
    ordinal int not null,
    text text not null,
    -- Of no language: an index may hold several.
    words tsvector not null generated always as (to_tsvector('simple', text)) stored,
    primary key (index_id, document_id, ordinal),
    foreign key (index_id, document_id) references index_documents (index_id, id) on delete cascade
);

create index index_chunks_words on index_chunks using gin (words);

-- Adds what needs pgvector, once the server has it. False where it has not, or where this role may not: indexes are then searched by
-- words alone. Run by this migration, by `longhaul migrate`, and again before the first embedding is stored.
create function longhaul_enable_vectors() returns boolean
    language plpgsql volatile
    as $$
begin
    if exists (
        select from pg_attribute where attrelid = 'index_chunks'::regclass and attname = 'embedding' and not attisdropped
    ) then
        return true;
    end if;
    if not exists (select from pg_available_extensions where name = 'vector') then
        return false;
    end if;
    create extension if not exists vector;
    alter table index_chunks add column if not exists embedding vector;
    return true;
exception when insufficient_privilege then
    return false;
end
$$;

select longhaul_enable_vectors();

-- Stores a document in the place of what it was before, whole. Says what came of it: stored, or why not (gone, model, dimension, full,
-- no_vectors). Without `texts` the chunks are in another store; without `vectors` they are found by words alone.
create function longhaul_put_document(
    of_index uuid, document text, hash bytea, size int, meta jsonb, pieces int, texts text[], vectors text[], width int,
    of_model text, most int
) returns text
    language plpgsql volatile
    as $$
declare
    i indexes;
    before int;
begin
    -- One writer at a time for each index, so that its counts and its limit hold.
    select * into i from indexes x where x.id = of_index for no key update;
    if not found then
        return 'gone';
    end if;
    if i.model <> of_model then
        return 'model';
    end if;
    if i.dimension <> width then
        return 'dimension';
    end if;
    select d.chunks into before from index_documents d where d.index_id = of_index and d.id = document;
    if i.chunks - coalesce(before, 0) + pieces > most then
        return 'full';
    end if;
    if vectors is not null and not longhaul_enable_vectors() then
        return 'no_vectors';
    end if;
    delete from index_chunks c where c.index_id = of_index and c.document_id = document;
    insert into index_documents (index_id, id, content_hash, bytes, chunks, metadata, created_at, updated_at)
    values (of_index, document, hash, size, pieces, meta, longhaul_now(), longhaul_now())
    on conflict (index_id, id) do update
    set content_hash = excluded.content_hash, bytes = excluded.bytes, chunks = excluded.chunks, metadata = excluded.metadata,
        updated_at = excluded.updated_at;
    if vectors is not null then
        insert into index_chunks (index_id, document_id, ordinal, text, embedding)
        select of_index, document, p.ordinal, p.text, p.embedding::vector
        from unnest(texts, vectors) with ordinality as p (text, embedding, ordinal);
    elsif texts is not null then
        insert into index_chunks (index_id, document_id, ordinal, text)
        select of_index, document, p.ordinal, p.text
        from unnest(texts) with ordinality as p (text, ordinal);
    end if;
    update indexes x
    set model = coalesce(x.model, of_model), dimension = coalesce(x.dimension, width), updated_at = longhaul_now(),
        chunks = x.chunks - coalesce(before, 0) + pieces, documents = x.documents + case when before is null then 1 else 0 end
    where x.id = of_index;
    return 'stored';
end
$$;

-- The chunks whose embeddings are nearest to `query`, of documents that have everything in `having_all`. Every chunk is looked at: exact,
-- and bounded by the size an index may have. The distance is that of the cosine, 1 where there is none.
create function longhaul_nearest_chunks(of_index uuid, query text, having_all jsonb, most int)
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
        where c.index_id = of_index and c.embedding is not null and d.metadata @> having_all
    ) as n
    order by n.distance, n.document_id, n.ordinal
    limit most;
end
$$;
