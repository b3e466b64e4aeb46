-- Stores the embeddings of episodes whose content is still that of `hashes`. Returns false without pgvector.
create or replace function longhaul_embed_episodes(ids uuid[], hashes bytea[], model text, vectors text[])
    returns boolean
    language plpgsql volatile
    as $$
begin
    if not longhaul_enable_vectors() then
        return false;
    end if;
    update memory_episodes m
    set embedding = e.embedding::vector, embedding_model = model
    from unnest(ids, hashes, vectors) as e (id, hash, embedding)
    where m.id = e.id and m.hash = e.hash;
    return true;
end
$$;
