-- Removes ended calls, and learns from those that were answered. A late message must not remove a newer call of the
-- same execution, so the score must match.
-- KEYS[1]  hash of the endpoint; see pace.lua
-- KEYS[2]  sorted set of calls in flight: execution, scored by the second at which the call is considered lost
-- ARGV[1]  current time in seconds
-- ARGV[2]  expiry of the keys after their last update, in seconds
-- ARGV[3]  calls that were answered
-- ARGV[4]  tokens that were estimated for them, and
-- ARGV[5]  tokens that they used
-- ARGV[6]  requests that the endpoint allows, as the last answer's headers say; -1 for none
-- ARGV[7]  requests that remain
-- ARGV[8]  seconds until all are there again
-- ARGV[9] to ARGV[11]  the same of tokens
-- ARGV[12] and so on  pairs of execution and score
for i = 12, #ARGV, 2 do
  local lost_at = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if lost_at and number(lost_at) == number(ARGV[i + 1]) then
    redis.call('ZREM', KEYS[2], ARGV[i])
  end
end
if number(ARGV[3]) == 0 then
  return 0
end
local s = load(number(ARGV[1]))
local now = s.now
s.row, s.answered_at = 0, now
if now - s.served_at > 5 * AVERAGED then s.served, s.served_from = 0, now end
s.served = s.served * math.exp(-math.max(0, now - s.served_at) / AVERAGED) + number(ARGV[3]) / AVERAGED
s.served_at = now
local estimated, used = number(ARGV[4]), number(ARGV[5])
if estimated > 0 and used > 0 then
  local seen = math.min(used / estimated, 2)
  if s.refill > 0 and s.ratio > 0 then
    s.t = s.t - (estimated * s.ratio - used) / s.refill
  end
  s.ratio = s.ratio > 0 and s.ratio + 0.2 * (seen - s.ratio) or seen
end
-- A bucket that fills evenly, or a window that ends: the faster of both, since a refusal corrects it.
local function stated(first)
  local size, left, reset = number(ARGV[first]), number(ARGV[first + 1]), number(ARGV[first + 2])
  if size <= 0 or reset <= 0.02 then return nil end
  return math.max(left, size - left) / reset, size, left
end
local rate = stated(6)
if rate and (s.rate == 0 or rate < s.rate) then
  s.rate, s.rate_at, s.hold, s.step = rate, now, 2, 0.02
end
local refill, size, left = stated(9)
if refill then
  s.refill, s.size = refill, size
  s.t = math.max(s.t, now - left / refill)
end
save(s, ARGV[2])
return 0
