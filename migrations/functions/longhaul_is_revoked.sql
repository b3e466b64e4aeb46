-- True if a key was revoked, or its account disabled, and so were all keys that replaced it; also if it is gone, which
-- is 90 days later. False of null.
create or replace function longhaul_is_revoked(key uuid) returns boolean
    language sql stable
    as $$
    with recursive line as (
        select k.id, k.revoked_at, k.replaced_by from api_keys k where k.id = key
        union
        select k.id, k.revoked_at, k.replaced_by from line join api_keys k on k.id = line.replaced_by
    )
    select key is not null and not exists (select from line where revoked_at is null)
$$;
