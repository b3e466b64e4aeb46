-- People who sign in with an OpenID Connect provider (docs/adr/0062-accounts.md). An account is an API key without a
-- secret: what names a caller (submits, decisions, the audit log) names a key. Its hash is of issuer and subject.
alter table api_keys add column is_account boolean not null default false;

create table accounts (
    key_id uuid primary key references api_keys on delete cascade,
    issuer text not null,
    -- Identifier of the person at the issuer.
    subject text not null,
    email text,
    -- Roles at the newest sign-in, of which `api_keys.scopes` has the scopes.
    roles text[] not null,
    signed_in_at timestamptz not null,
    unique (issuer, subject)
);
