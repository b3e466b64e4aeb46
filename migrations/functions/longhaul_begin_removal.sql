-- Begins to remove a document. It is gone when its chunks are; until then putting it stores it anew. Nothing is drawn
-- when there is no such index.
create or replace function longhaul_begin_removal(of_index uuid, document text, out drawn bigint, out was_there boolean)
    language plpgsql volatile
    as $$
begin
    -- A statement of its own: the next one must see what a writer has committed while this one waited for it.
    update indexes x set generation = x.generation + 1 where x.id = of_index returning x.generation into drawn;
    update index_documents d set content_hash = '', generation = drawn where d.index_id = of_index and d.id = document;
    was_there := found;
end
$$;
