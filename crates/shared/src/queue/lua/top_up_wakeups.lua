-- Raises a list to a wanted length. Reading the length and pushing are one step, so that
-- sweeps of many workers in the same second do not each add what is missing.
-- KEYS[1]  list of wake-ups of one queue
-- ARGV[1]  wanted length, already bounded by the cap
-- ARGV[2]  seconds after which a list nobody touches disappears
-- ARGV[3]  the wake-up to push
-- returns  the number pushed
local missing = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1])
if missing <= 0 then
  return 0
end
for _ = 1, missing do
  redis.call('RPUSH', KEYS[1], ARGV[3])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return missing
