-- Fills a list up to a wanted length. Reading the length and pushing are atomic, so that concurrent sweeps do not
-- each add the missing wake-ups.
-- KEYS[1]  list of wake-ups of one queue
-- ARGV[1]  wanted length, already bounded by the cap
-- ARGV[2]  expiry of the list after its last push, in seconds
-- ARGV[3]  wake-up to push
-- returns  number of wake-ups pushed
local missing = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1])
if missing <= 0 then
  return 0
end
for _ = 1, missing do
  redis.call('RPUSH', KEYS[1], ARGV[3])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return missing
