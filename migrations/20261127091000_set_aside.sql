-- Items that a duty, or a run of `longhaul prune`, could not handle, so that the rest goes on (core-rules 30). A row
-- goes when its item was handled after all, or 30 days after the last attempt.
create table set_aside (
    -- The duty, or the part of a run, that met the item.
    what text not null,
    -- Id of the item.
    subject text not null check (length(subject) <= 200),
    tenant_id uuid,
    -- Kind of the error. Its text, which may hold texts of the item, is in the log alone.
    error text not null,
    -- First and last attempt, and the time before which a duty leaves the item alone.
    since timestamptz not null,
    at timestamptz not null,
    next_at timestamptz not null,
    attempts int not null default 1,
    primary key (what, subject)
);
create index set_aside_age on set_aside (at);

comment on table set_aside is 'Items that maintenance could not handle, one row each.';
