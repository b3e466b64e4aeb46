-- The search for texts that have any word of `words`: a question is rarely answered in all of its own words.
create or replace function longhaul_any_word(words text) returns tsquery
    language sql immutable
    as $$ select replace(plainto_tsquery('simple', words)::text, ' & ', ' | ')::tsquery $$;
