-- Adds the extension pgvector and the columns `embedding`. Returns false if the server does not have the extension
-- or this role may not create it: indexes and memories are then searched by words alone. Run by `longhaul migrate`, and
-- again before the first embedding is stored.
create or replace function longhaul_enable_vectors() returns boolean
    language plpgsql volatile
    as $$
begin
    if (
        select count(*) = 2 from pg_attribute
        where attrelid in ('index_chunks'::regclass, 'memory_episodes'::regclass) and attname = 'embedding'
            and not attisdropped
    ) then
        return true;
    end if;
    if not exists (select from pg_available_extensions where name = 'vector') then
        return false;
    end if;
    create extension if not exists vector;
    alter table index_chunks add column if not exists embedding vector;
    alter table memory_episodes add column if not exists embedding vector;
    return true;
exception when insufficient_privilege then
    return false;
end
$$;
