-- Adds what needs pgvector, once the server has it. False where it has not, or where this role may not: indexes are
-- then searched by words alone. Run by this migration, by `longhaul migrate`, and again before the first embedding is
-- stored.
create or replace function longhaul_enable_vectors() returns boolean
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
