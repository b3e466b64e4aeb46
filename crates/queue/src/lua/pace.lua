-- State of an endpoint's limits, read first by each script of model calls. KEYS[1] is a hash of numbers:
--   now                 latest time of all callers in seconds, so that time never goes back
--   r, t                times at which the next request and the next token conform
--   rate, rate_at       learned calls per second, and when it was learned; 0 while none is known
--   hold, step          seconds for which a learned rate is kept before more is tried, and by what share
--   tried, lost         calls since then, and those that were refused
--   share, before       share that was refused when it last went down, and the rate before that
--   window, window_at   learned concurrent calls, and when they were learned
--   refill, size        tokens per second and at most, as the provider's headers say
--   ratio               tokens that calls used, per token that was estimated
--   shut                time before which the endpoint takes no calls
--   row, answered_at    refusals since the last answer, and its time
--   last, bound         times of the last call, and of the last one that a learned limit held back
--   served, served_at   calls answered per second, averaged over about two seconds, and when
--   served_from         begin of that average
--   flow, flow_at       calls admitted per second, averaged over about a second, and when
local function number(text) return tonumber(text) or 0 end

local NAMES = { 'now', 'r', 't', 'rate', 'rate_at', 'hold', 'step', 'tried', 'lost', 'share', 'before', 'window',
  'window_at', 'refill', 'size', 'ratio', 'shut', 'row', 'answered_at', 'last', 'bound', 'served', 'served_at',
  'served_from', 'flow', 'flow_at' }

local function load(now)
  local values = redis.call('HMGET', KEYS[1], unpack(NAMES))
  local s = { loaded = {} }
  for i, name in ipairs(NAMES) do
    s[name] = number(values[i])
    s.loaded[name] = s[name]
  end
  s.now = math.max(s.now, now)
  return s
end

local function save(s, ttl)
  -- `now` is always written, so that there is a hash to expire.
  local values = { 'now', string.format('%.6f', s.now) }
  for _, name in ipairs(NAMES) do
    if s[name] ~= s.loaded[name] and name ~= 'now' then
      values[#values + 1] = name
      values[#values + 1] = string.format('%.6f', s[name])
    end
  end
  redis.call('HSET', KEYS[1], unpack(values))
  redis.call('EXPIRE', KEYS[1], ttl)
end

-- A learned limit some seconds later: kept for a while, then raised by small steps that double each second. It comes
-- back near where it broke within seconds, and goes far beyond when more is allowed than was.
local function grown(s, base, at, hold, step)
  local seconds = math.min(math.max(0, s.now - at - hold), 20)
  return base + step * (2 ^ seconds - 1)
end

local WINDOW_HOLD = 3
-- A rate is raised no further than to half as much again as was really asked for: more would be no proof, but a burst
-- later.
local function flow_of(s) return s.flow * math.exp(-math.max(0, s.now - s.flow_at)) end
local function pace_of(s)
  if s.rate <= 0 then return 0 end
  return math.max(s.rate, math.min(grown(s, s.rate, s.rate_at, s.hold, s.step * s.rate), 1.5 * flow_of(s) + 1))
end
local function window_of(s)
  if s.window <= 0 then return 0 end
  return math.floor(grown(s, s.window, s.window_at, WINDOW_HOLD, math.max(1, 0.02 * s.window)))
end

local AVERAGED = 2
local function served_of(s)
  local age = s.now - s.served_from
  if age < 0.5 or s.served_from == 0 then return 0 end
  local decayed = s.served * math.exp(-math.max(0, s.now - s.served_at) / AVERAGED)
  return decayed / (1 - math.exp(-age / AVERAGED))
end

local function running_of(s)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', s.now)
  return redis.call('ZCARD', KEYS[2])
end
