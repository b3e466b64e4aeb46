-- Pushes wake-ups as long as the list is below its cap; what does not fit is dropped.
-- KEYS[1]    list of wake-ups of one queue
-- ARGV[1]    cap of the list, in wake-ups
-- ARGV[2]    seconds after which a list nobody touches disappears
-- ARGV[3..]  wake-ups, 16 bytes each, at most 1,000 (Lua's unpack ends near 8,000)
-- returns    the number pushed
local room = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1])
local pushed = math.min(room, #ARGV - 2)
if pushed <= 0 then
  return 0
end
redis.call('RPUSH', KEYS[1], unpack(ARGV, 3, pushed + 2))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return pushed
