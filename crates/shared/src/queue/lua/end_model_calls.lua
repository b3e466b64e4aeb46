-- These calls are under way no more. Said late, it must not end another call that the same execution has begun since: that is
-- believed lost at another second.
-- KEYS[1]  sorted set of calls under way, by execution, with the second at which each is believed lost
-- ARGV     execution and second, again and again
for i = 1, #ARGV, 2 do
  local lost_at = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if lost_at and tonumber(lost_at) == tonumber(ARGV[i + 1]) then
    redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return 0
