-- Admits a model call under the endpoint's rates (GCRA) and concurrency limit. The rates are stored as the times at
-- which the next request and the next token conform. Of a rate of n per minute, n / 10 may burst and the rest is
-- spread, so that no minute sees more than n; for tokens, n plus the last call if a call takes more than the burst.
-- KEYS[1]  hash of the endpoint's rates: r (requests), t (tokens) and now, in seconds
-- KEYS[2]  sorted set of calls in flight: execution, scored by the second at which the call is considered lost
-- KEYS[3]  sorted set of reserved slots: execution, scored by the slot's second; deleted one hour later
-- ARGV[1]  current time in seconds; the latest time of all callers counts, so that time never goes back
-- ARGV[2]  execution
-- ARGV[3]  requests per minute, 0 for no limit
-- ARGV[4]  tokens per minute, 0 for no limit
-- ARGV[5]  tokens of this call
-- ARGV[6]  concurrent calls, 0 for no limit
-- ARGV[7]  second at which this call is considered lost; end_model_calls.lua must give the same value
-- ARGV[8]  longest wait for which a slot is reserved, in seconds
-- ARGV[9]  expiry of the keys after their last update, in seconds
-- returns  {0, 0} admitted; {1, ms} slot reserved, retry after ms; {2, ms} wait too long, nothing reserved;
--          {3, n} concurrency limit reached by n calls; {4, 0} admitted with a slot reserved earlier
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
    -- A call larger than the burst is admitted when the whole burst is available; it can never get more. Later
    -- calls wait for its full amount, but at most for one minute's tokens: otherwise an estimate of millions would
    -- block the endpoint for hours.
    wait = math.max(wait, math.max(t, now - tokens_ahead) + math.min(amount, burst) * step - now)
    token_charge = math.min(amount, tokens) * step
  end
  if wait > patience then
    return {2, math.ceil(wait * 1000)}
  end
  -- Counted from the time of admission, because one rate may delay a call that the other would admit at once.
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
