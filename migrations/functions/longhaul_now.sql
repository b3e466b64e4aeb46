-- The clock of SQL, except where real time is measured: heartbeats, duties of the sweep, portions. Stable, so that a
-- comparison with it is an index condition (core-rules 28, docs/adr/0065-a-clock-that-is-stable.md).
--
-- It is the start of the client's statement and stands still within it, also in the functions that the statement calls
-- and after a wait for a lock. What follows from that:
--
-- * Rows written by one statement have one time. Where their order counts, they have a number of their own (`seq` of
--   events, `exchange` of episodes), or microseconds are added (`asked_at` in longhaul_reserve).
-- * Ids of longhaul_uuid made by one statement share their milliseconds: they are in no order among themselves.
-- * A statement that waited may write a time before that of the row it waited for. Breakers and rates therefore never
--   go back (`greatest`), and whatever is found not due yet is found by the next look.
-- * It costs some microseconds. A comparison that is no index condition is made for each row: there the time is read
--   once, by `(select longhaul_now())`.
-- * Nothing waits for time within a statement, and no loop of one asks whether time has passed.
--
-- In plpgsql, because each statement of the hot path calls it: a function in SQL is parsed and planned for each
-- statement, this one once per connection.
create or replace function longhaul_now() returns timestamptz
    language plpgsql stable parallel safe
    as $$
begin
    return statement_timestamp() + (select shift from clock);
end
$$;
