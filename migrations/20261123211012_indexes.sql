-- Indexes of documents that executions search (docs/adr/0017-retrieval.md), each visible to its tenant alone.

create table indexes (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    name text not null check (name ~ '^[a-z0-9][a-z0-9._-]{0,127}$'),
    -- Store of the chunks: pgvector (this database), qdrant_http or weaviate_http.
    store text not null,
    -- Model and dimension of the embeddings, set by the first document that was embedded; all others use the
    -- same.
    model text,
    dimension int check (dimension > 0),
    documents int not null default 0,
    chunks int not null default 0,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- Number of the last writer of a document whose chunks are in another store. Counted per index: a document
    -- that is removed and put again must not get a number that an earlier writer still holds.
    generation bigint not null default 0,
    unique (tenant_id, name)
);

-- Documents of an index, without their chunks.
create table index_documents (
    index_id uuid not null references indexes (id) on delete cascade,
    id text not null check (char_length(id) between 1 and 256),
    -- Hash of everything that the chunks and embeddings are made from: a put with the same hash changes nothing.
    content_hash bytea not null,
    bytes int not null,
    chunks int not null,
    metadata jsonb not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- Number of the last put or removal. `content_hash` is empty until it is done, so that the next put stores
    -- the document again.
    generation bigint not null default 0,
    primary key (index_id, id)
);

-- Chunks of indexes whose store is pgvector. The column `embedding` is added with the extension.
create table index_chunks (
    index_id uuid not null,
    document_id text not null,
    ordinal int not null,
    text text not null,
    -- Words without a language's rules: an index may hold several languages.
    words tsvector not null generated always as (to_tsvector('simple', text)) stored,
    primary key (index_id, document_id, ordinal),
    foreign key (index_id, document_id) references index_documents (index_id, id) on delete cascade
);

create index index_chunks_words on index_chunks using gin (words);

-- A document to store. `dimension` and `model` are null for an index that is searched by words alone.
create type new_document as (
    id text,
    content_hash bytea,
    bytes int,
    metadata jsonb,
    chunks int,
    dimension int,
    model text
);
