-- Admits a model call under the endpoint's rates (GCRA) and its limit on concurrent calls, configured or learned. Of a
-- configured rate of n per minute, n / 10 may burst and the rest is spread, so that no minute sees more than n; for
-- tokens, n plus the last call if a call takes more than the burst. A learned rate has next to no burst, and slots are
-- reserved for less than half a second: by then it may be another.
-- KEYS[1]  hash of the endpoint; see pace.lua
-- KEYS[2]  sorted set of calls in flight: execution, scored by the second at which the call is considered lost
-- KEYS[3]  sorted set of reserved slots: execution, scored by the slot's second; deleted one hour later. Also `after` and
--          the execution, scored by the end of the wait that a refusal stated
-- ARGV[1]  current time in seconds
-- ARGV[2]  execution
-- ARGV[3]  configured requests per minute, 0 for no limit
-- ARGV[4]  configured tokens per minute, 0 for no limit
-- ARGV[5]  tokens of this call
-- ARGV[6]  configured concurrent calls, 0 for no limit
-- ARGV[7]  second at which this call is considered lost; end_model_calls.lua must give the same value
-- ARGV[8]  longest wait for which a slot is reserved, in seconds
-- ARGV[9]  expiry of the keys after their last update, in seconds
-- ARGV[10] calls of the caller's process in flight that are not in the set: they began before a limit was known
-- returns  {0, 0} admitted; {1, ms} slot reserved, retry after ms; {2, ms} wait too long, nothing reserved;
--          {3, n} limit reached with n calls in flight; {4, 0} admitted with a slot reserved earlier; {5, ms} the
--          endpoint takes no calls for ms; {6, 0} admitted, and the endpoint has no limit any more
local AHEAD, RESTS, FORGET = 0.4, 2.5, 600
local s = load(number(ARGV[1]))
local now = s.now
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - 3600)
local who, requests, tokens, amount = ARGV[2], number(ARGV[3]), number(ARGV[4]), number(ARGV[5])
local at_once, lost_at, patience, ttl = number(ARGV[6]), ARGV[7], number(ARGV[8]), ARGV[9]
local is_configured = requests > 0 or tokens > 0 or at_once > 0

if s.shut > now then
  save(s, ttl)
  return {5, math.ceil((s.shut - now) * 1000)}
end
if s.bound > 0 and now - math.max(s.bound, s.rate_at, s.window_at) > FORGET then
  s.rate, s.window, s.refill, s.bound = 0, 0, 0, 0
  if not is_configured then
    save(s, ttl)
    return {6, 0}
  end
end

-- A refused call comes back after its stated wait, and then like any other.
local returns = redis.call('ZSCORE', KEYS[3], 'after ' .. who)
if returns and number(returns) > now + 0.001 then
  save(s, ttl)
  local wait = number(returns) - now
  return {wait > patience and 2 or 1, math.ceil(wait * 1000)}
end
if returns then
  redis.call('ZREM', KEYS[3], 'after ' .. who)
end

-- Time passes for a learned limit only while it holds calls back: else it would grow without proof.
local passed = s.last > 0 and now - s.bound > RESTS and now - s.last or 0
s.last = now
local function rest(at, hold) return now - at > hold and math.min(now, at + passed) or at end
s.rate_at, s.window_at = rest(s.rate_at, s.hold), rest(s.window_at, WINDOW_HOLD)

local running = running_of(s) + number(ARGV[10])
local window = window_of(s)
local most = at_once > 0 and window > 0 and math.min(at_once, window) or math.max(at_once, window)
if most > 0 and running >= most and not redis.call('ZSCORE', KEYS[2], who) then
  s.bound = now
  save(s, ttl)
  return {3, running}
end

local verdict = 0
local reserved = redis.call('ZSCORE', KEYS[3], who)
if reserved and s.rate > 0 and now - number(reserved) > AHEAD then
  -- It comes late: others have been let in since.
  redis.call('ZREM', KEYS[3], who)
  reserved = false
end
if reserved and number(reserved) > now + 0.05 then
  save(s, ttl)
  return {1, math.ceil((number(reserved) - now) * 1000)}
end
if reserved then
  redis.call('ZREM', KEYS[3], who)
  verdict = 4
else
  local wait, pace = 0, pace_of(s)
  local request_step, requests_ahead, token_charge, tokens_ahead = 0, 0, 0, 0
  if requests > 0 then
    request_step = 60 / (0.9 * requests)
    requests_ahead = (math.max(1, math.floor(requests / 10)) - 1) * request_step
  end
  if pace > 0 and 1 / pace > request_step then
    request_step = 1 / pace
    requests_ahead = (math.max(1, 0.05 * pace) - 1) * request_step
  end
  if request_step > 0 then
    wait = math.max(wait, s.r - now)
  end
  if tokens > 0 or s.refill > 0 then
    local step, size = 60 / (0.9 * tokens), tokens
    if s.refill > 0 and (tokens == 0 or 1 / s.refill > step) then
      step, size = 1 / s.refill, s.size
    end
    local burst = tokens > 0 and math.max(1, tokens / 10) or size
    if s.ratio > 0 and s.refill > 0 then
      amount = amount * s.ratio
    end
    tokens_ahead = burst * step
    -- A call larger than the burst is admitted when the whole burst is available; it can never get more. Later
    -- calls wait for its full amount, but at most for one minute's tokens: otherwise an estimate of millions would
    -- block the endpoint for hours.
    wait = math.max(wait, math.max(s.t, now - tokens_ahead) + math.min(amount, burst) * step - now)
    token_charge = math.min(amount, size) * step
  end
  local is_learned = pace > 0 or s.refill > 0
  if is_learned and wait > 0 then
    s.bound = now
  end
  if is_learned and wait > AHEAD and (pace > 0 or tokens == 0) then
    save(s, ttl)
    return {3, running}
  end
  if wait > patience then
    save(s, ttl)
    return {2, math.ceil(wait * 1000)}
  end
  -- Counted from the time of admission, because one rate may delay a call that the other would admit at once.
  s.r = math.max(s.r, now + wait - requests_ahead) + request_step
  s.t = math.max(s.t, now + wait - tokens_ahead) + token_charge
  if wait > 0 then
    redis.call('ZADD', KEYS[3], string.format('%.6f', now + wait), who)
    redis.call('EXPIRE', KEYS[3], ttl)
    save(s, ttl)
    return {1, math.ceil(wait * 1000)}
  end
end
s.tried = s.tried + 1
s.flow, s.flow_at = flow_of(s) + 1, now
redis.call('ZADD', KEYS[2], lost_at, who)
redis.call('EXPIRE', KEYS[2], ttl)
save(s, ttl)
return {verdict, 0}
