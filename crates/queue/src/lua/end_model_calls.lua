-- Removes ended calls. A late message must not remove a newer call of the same execution, so the score must match.
-- KEYS[1]  sorted set of calls in flight: execution, scored by the second at which the call is considered lost
-- ARGV     pairs of execution and score
for i = 1, #ARGV, 2 do
  local lost_at = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if lost_at and tonumber(lost_at) == tonumber(ARGV[i + 1]) then
    redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return 0
