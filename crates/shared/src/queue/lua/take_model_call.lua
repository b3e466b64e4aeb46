-- May this execution make a model call now? Rates are kept as the time at which the next request, and the next token, would be
-- on time; a rate of n a minute is n / 10 at once and the rest spread, so that no minute sees more than n, or than n and the last
-- call where calls take more tokens than come at once.
-- KEYS[1]  hash of the endpoint's rates: r and t, in seconds
-- KEYS[2]  sorted set of calls under way, by execution, with the second at which each is believed lost
-- KEYS[3]  sorted set of reserved places, by execution, with the second at which each comes; forgotten an hour later
-- ARGV[1]  now, in seconds; the latest of all askers' counts, so that time never runs backwards
-- ARGV[2]  execution
-- ARGV[3]  requests a minute, 0 for any number
-- ARGV[4]  tokens a minute, 0 for any number
-- ARGV[5]  tokens of this call
-- ARGV[6]  calls at a time, 0 for any number
-- ARGV[7]  the second at which this call is believed lost; what ends it names the same
-- ARGV[8]  the longest wait for which a place is reserved, in seconds
-- ARGV[9]  seconds after which keys that nobody touches disappear
-- returns  {0, 0} go; {1, ms} a place is reserved, come back then; {2, ms} no place within the limit; {3, n} as many calls as
--          may be are under way, n of them; {4, 0} go, with a place that was reserved before
local function number(text) return tonumber(text) or 0 end
local now = math.max(number(ARGV[1]), number(redis.call('HGET', KEYS[1], 'now')))
redis.call('HSET', KEYS[1], 'now', string.format('%.6f', now))
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - 3600)
local who, requests, tokens, amount = ARGV[2], number(ARGV[3]), number(ARGV[4]), number(ARGV[5])
local at_once, lost_at, patience, ttl = number(ARGV[6]), ARGV[7], number(ARGV[8]), ARGV[9]

if at_once > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  local running = redis.call('ZCARD', KEYS[2])
  if running >= at_once and not redis.call('ZSCORE', KEYS[2], who) then
    return {3, running}
  end
end

local verdict = 0
local reserved = redis.call('ZSCORE', KEYS[3], who)
if reserved and number(reserved) > now + 0.05 then
  return {1, math.ceil((number(reserved) - now) * 1000)}
end
if reserved then
  redis.call('ZREM', KEYS[3], who)
  verdict = 4
else
  local wait = 0
  local r, t = number(redis.call('HGET', KEYS[1], 'r')), number(redis.call('HGET', KEYS[1], 't'))
  local request_step, requests_ahead, token_charge, tokens_ahead = 0, 0, 0, 0
  if requests > 0 then
    request_step = 60 / (0.9 * requests)
    requests_ahead = (math.max(1, math.floor(requests / 10)) - 1) * request_step
    wait = math.max(wait, r - now)
  end
  if tokens > 0 then
    local burst = math.max(1, tokens / 10)
    local step = 60 / (0.9 * tokens)
    tokens_ahead = burst * step
    -- A call that takes more than comes at once goes when that is there: there is never more. Those after it wait for the whole of it,
    -- but for no more than a minute's tokens: then the minute that it filled is over, and an estimate of millions would hold up
    -- everybody for hours.
    wait = math.max(wait, math.max(t, now - tokens_ahead) + math.min(amount, burst) * step - now)
    token_charge = math.min(amount, tokens) * step
  end
  if wait > patience then
    return {2, math.ceil(wait * 1000)}
  end
  -- Counted from when it goes: one rate may hold back what the other would let go at once.
  r = math.max(r, now + wait - requests_ahead) + request_step
  t = math.max(t, now + wait - tokens_ahead) + token_charge
  redis.call('HSET', KEYS[1], 'r', string.format('%.6f', r), 't', string.format('%.6f', t))
  redis.call('EXPIRE', KEYS[1], ttl)
  if wait > 0 then
    redis.call('ZADD', KEYS[3], string.format('%.6f', now + wait), who)
    redis.call('EXPIRE', KEYS[3], ttl)
    return {1, math.ceil(wait * 1000)}
  end
end
if at_once > 0 then
  redis.call('ZADD', KEYS[2], lost_at, who)
  redis.call('EXPIRE', KEYS[2], ttl)
end
return {verdict, 0}
