-- Learns from a call that the endpoint refused for its limits.
-- KEYS[1]  hash of the endpoint; see pace.lua
-- KEYS[2]  sorted set of calls in flight
-- KEYS[3]  sorted set of reserved slots: the call comes back after its stated wait
-- ARGV[1]  current time in seconds
-- ARGV[2]  execution
-- ARGV[3]  1 if the refusal tells of a rate: it stated a time, or its headers say that none is left
-- ARGV[4]  stated wait in seconds, 0 for none
-- ARGV[5]  other calls in flight as far as the caller knows, used while nothing is learned; then those of its process
--          that are not in the set
-- ARGV[6]  calls of the caller's process in the last second that were not refused, if it learns of the limit only now
-- ARGV[7]  expiry of the keys after their last update, in seconds
-- returns  learned concurrent calls, calls per 1,000 seconds, and ms for which the endpoint takes no calls
-- A rate that broke goes down to what the endpoint answered. Concurrent calls are known exactly: those that are in
-- flight were not refused.
local LEAST, MOST, OFTEN, EVENT, FEW, SILENCE, LONGEST = 0.03, 0.5, 0.1, 1, 3, 1, 30
-- A longer wait is believed at once, and this much of it.
local LONG, MOST_SHUT = 60, 300
local s = load(number(ARGV[1]))
local now = s.now
local is_rate, stated, begun, ttl = ARGV[3] == '1', number(ARGV[4]), number(ARGV[6]), ARGV[7]
local is_known = s.rate > 0 or s.window > 0
redis.call('ZREM', KEYS[2], ARGV[2])
local running = running_of(s)
s.lost = s.lost + 1
-- Calls that were under way before count as one with the first.
if now >= s.shut then s.row = s.row + 1 end
local is_silent = now - s.answered_at > SILENCE and (s.row > FEW or running + number(ARGV[5]) == 0)

if is_rate then
  if s.rate == 0 then
    -- One process alone has told of its calls: more is tried soon, and faster than later.
    s.rate, s.rate_at, s.hold, s.step = math.max(1, begun), now, 0.5, 0.1
    s.tried, s.lost = 0, 0
  elseif begun > 0 and now - s.rate_at < EVENT then
    -- Another process had begun as well.
    s.rate = s.rate + begun
  elseif now - s.rate_at > EVENT then
    local pace, share = pace_of(s), s.lost / math.max(1, s.tried)
    local is_alike = share < MOST and share >= OFTEN and share >= 0.8 * s.share and share <= 1.25 * s.share + 0.05
    if is_alike and s.share >= OFTEN and now - s.rate_at < 4 * EVENT then
      -- As many are refused at a lower rate as before: the rate is not the cause.
      s.rate, s.hold, s.step = math.max(pace, s.before), 0, 0.25
      s.share = 0.5 * (s.share + share)
    else
      s.before, s.share = pace, share
      -- An endpoint answers as many as it allows, whatever it is asked. Before that is known, the share tells.
      local is_measured = now - s.rate_at >= AVERAGED and served_of(s) > 0
      local allowed = is_measured and served_of(s) or pace * (1 - share)
      s.rate = math.max(0.05, math.min(pace * (1 - LEAST), math.max(pace * (1 - MOST), allowed)))
      s.hold, s.step = math.max(2, 2 * stated), 0.02
    end
    s.rate_at, s.tried, s.lost = now, 0, 0
  end
  s.r = math.max(s.r, now + 1 / s.rate)
  -- One refusal at the edge delays its own call. Without any answer, nothing is taken before the stated time.
  if not is_known or is_silent or stated > LONG then
    s.shut = math.max(s.shut, now + math.min(stated, MOST_SHUT))
  end
  if stated > 0 then
    redis.call('ZADD', KEYS[3], string.format('%.6f', now + stated), 'after ' .. ARGV[2])
    redis.call('EXPIRE', KEYS[3], ttl)
  end
else
  local others = (is_known and running or 0) + number(ARGV[5])
  local known = window_of(s)
  s.window, s.window_at = math.max(1, known > 0 and math.min(known, others) or others), now
end
-- An endpoint that answers nothing is tried less and less often.
if is_silent then
  s.shut = math.max(s.shut, now + math.min(LONGEST, 0.1 * 2 ^ math.min(s.row - FEW, 20)))
end
s.bound = now
save(s, ttl)
return {math.floor(s.window), math.floor(pace_of(s) * 1000), math.ceil(math.max(0, s.shut - now) * 1000)}
