-- Strikes a reaction from rows of `ends` and returns them; a row of which it was the last reaction is deleted. The last
-- statement of the reaction's transaction, so that the work and this happen together, and no reaction of the same row
-- waits for the work of another. A row that another process has taken is not returned.
create or replace function longhaul_strike_ends(reaction text, ids bigint[]) returns setof ends
    language sql volatile rows 200
    as $$
    with taken as materialized (
        select e.* from ends e where e.id = any (ids) and reaction = any (e.reactions)
        order by e.id
        for update
    ),
    kept as (
        update ends e set reactions = array_remove(t.reactions, reaction)
        from taken t where e.id = t.id and cardinality(t.reactions) > 1
    ),
    gone as (
        delete from ends e using taken t where e.id = t.id and cardinality(t.reactions) = 1
    )
    select * from taken
    $$;
