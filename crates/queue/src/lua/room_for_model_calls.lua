-- Tells how many more calls an endpoint would take within the next half second, and what is learned of it.
-- KEYS[1]  hash of the endpoint; see pace.lua
-- KEYS[2]  sorted set of calls in flight
-- ARGV[1]  current time in seconds
-- ARGV[2]  configured concurrent calls, 0 for no limit
-- ARGV[3]  1 if executions wait in the line
-- ARGV[4]  expiry of the keys after their last update, in seconds
-- returns  calls, learned concurrent calls, calls per 1,000 seconds, ms for which the endpoint takes no calls, 1 if
--          anything is learned, and calls answered in 1,000 seconds
local AHEAD, ANY = 0.5, 1000000
local s = load(number(ARGV[1]))
local now, room = s.now, ANY
local at_once, window, pace = number(ARGV[2]), window_of(s), pace_of(s)
local most = at_once > 0 and window > 0 and math.min(at_once, window) or math.max(at_once, window)
if most > 0 then room = math.max(0, most - running_of(s)) end
if pace > 0 then
  -- However slow the pace is, a call that may begin now is let go.
  room = math.min(room, math.max(s.r <= now and 1 or 0, (AHEAD - math.max(0, s.r - now)) * pace))
end
if s.shut > now + AHEAD then room = 0 end
if ARGV[3] == '1' and (pace > 0 or window > 0) then
  s.bound = now
  save(s, ARGV[4])
end
local learns = (s.rate > 0 or s.window > 0 or s.refill > 0) and 1 or 0
return {math.floor(room), window, math.floor(pace * 1000), math.ceil(math.max(0, s.shut - now) * 1000), learns,
  math.floor(served_of(s) * 1000)}
