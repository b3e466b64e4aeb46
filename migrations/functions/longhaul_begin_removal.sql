-- Begins to remove a document. Its row stays until its chunks are deleted; a put before that stores it again.
-- Draws no number if the index does not exist.
create or replace function longhaul_begin_removal(of_index uuid, document text, out drawn bigint, out was_there boolean)
    language plpgsql volatile
    as $$
begin
    -- A statement of its own: the next one must see what a writer committed while this one waited for the lock.
    update indexes x set generation = x.generation + 1 where x.id = of_index returning x.generation into drawn;
    update index_documents d set content_hash = '', generation = drawn where d.index_id = of_index and d.id = document;
    was_there := found;
end
$$;
