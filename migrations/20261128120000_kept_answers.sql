-- Answers to requests with an Idempotency-Key that store no execution under it (docs/adr/0072-kept-answers.md). Without
-- a status, the request is under way.
create table kept_answers (
    tenant_id uuid not null,
    -- SHA-256 of the path: a key given to another path is another key.
    place bytea not null,
    key text not null,
    -- Of the process that answers the request.
    claim uuid not null,
    request_hash bytea not null,
    -- Scopes that the answered request needed: a repeat needs them too.
    scopes text[] not null default '{}',
    -- Ids and keys that the path and the answer name; the body goes with the erasure of any of them.
    subjects text[] not null default '{}',
    status smallint,
    -- Encoded as other bodies are (`history::body`); null after an erasure.
    body bytea,
    created_at timestamptz not null,
    primary key (tenant_id, place, key)
);
create index kept_answers_created on kept_answers (created_at);
create index kept_answers_subjects on kept_answers using gin (subjects) where body is not null;
