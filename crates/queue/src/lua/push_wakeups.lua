-- Pushes wake-ups up to the list's cap and drops the rest.
-- KEYS[1]    list of wake-ups of one queue
-- ARGV[1]    cap of the list, in wake-ups
-- ARGV[2]    expiry of the list after its last push, in seconds
-- ARGV[3..]  wake-ups of 16 or 17 bytes, at most 1,000 (Lua's unpack fails near 8,000)
-- returns    number of wake-ups pushed
local room = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1])
local pushed = math.min(room, #ARGV - 2)
if pushed <= 0 then
  return 0
end
redis.call('RPUSH', KEYS[1], unpack(ARGV, 3, pushed + 2))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return pushed
