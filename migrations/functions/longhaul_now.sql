-- The clock of SQL, except where real time is measured: heartbeats, duties of the sweep, portions. In plpgsql,
-- because each statement of the hot path calls it: a function in SQL is parsed and planned for each statement,
-- this one once per connection.
create or replace function longhaul_now() returns timestamptz
    language plpgsql volatile parallel safe
    as $$
begin
    return clock_timestamp() + (select shift from clock);
end
$$;
