-- The only clock that SQL reads, apart from heartbeats, which use the real one. In plpgsql, because each statement of
-- the hot path calls it: a function in SQL is parsed and planned each time, this one once per connection.
create or replace function longhaul_now() returns timestamptz
    language plpgsql volatile parallel safe
    as $$
begin
    return clock_timestamp() + (select shift from clock);
end
$$;
