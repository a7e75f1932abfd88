-- Every script is this file and one more. One record is one hash, under the
-- script's only key.
--
-- Lua has no integers: a number is a double, exact up to 2^53. Times are
-- microseconds, exact until the year 2255 and kept below that by the caller.
-- A token may use 64 bits, so it is never made a number here: it is compared as
-- a string, raised by HINCRBY, and read back by HGET.
local key = KEYS[1]

local fields = {
  'v',      -- format, '1'
  'state',  -- 'free', 'running' or 'done'
  'scope', 'fp', 'nonce',
  'token', 'gen',
  'begun',  -- '0' or '1'
  'since',  -- when this generation was first claimed
  'ends',   -- when the lease (running), the retention (done) or Keep (free) is over
  'keep',   -- microseconds
  'how',    -- how it was freed: 'forget', 'reject', or ''
  'meta',
  -- and 'result' of a done record
}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- digits prints a number in full, which tostring does not.
local function digits(n)
  return string.format('%.0f', n)
end

local function isnumber(s, most)
  return s and #s <= most and string.find(s, '^%d+$') ~= nil
end

local states = {free = true, running = true, done = true}
local hows = {[''] = true, forget = true, reject = true}

-- load returns the record, or nil and why there is none: 'none', 'corrupt' or
-- 'format'.
local function load()
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then return nil, 'none' end
  if kind ~= 'hash' then return nil, 'corrupt' end
  local r = {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(fields))) do
    r[fields[i]] = value
  end
  if r.v and r.v ~= '1' then return nil, 'format' end
  if not (r.v and states[r.state] and hows[r.how] and r.meta
      and r.scope and #r.scope == 32 and r.fp and #r.fp == 32 and r.nonce and #r.nonce == 16
      and isnumber(r.token, 18) and string.sub(r.token, 1, 1) ~= '0'
      and isnumber(r.gen, 10) and tonumber(r.gen) < 4294967296
      and (r.begun == '0' or r.begun == '1')
      and isnumber(r.since, 16) and isnumber(r.ends, 16) and isnumber(r.keep, 16)
      and (r.state ~= 'done' or redis.call('HEXISTS', key, 'result') == 1)) then
    return nil, 'corrupt'
  end
  r.begun = r.begun == '1'
  r.since, r.ends, r.keep = tonumber(r.since), tonumber(r.ends), tonumber(r.keep)
  return r
end

-- outlived tells whether a done record's retention is over: it counts as
-- absent, whether or not Redis has removed it.
local function outlived(r)
  return r.state == 'done' and r.ends <= now
end

-- owned is load for the owner's calls: 'fenced' where it has another owner.
local function owned(nonce, token)
  local r, why = load()
  if why == 'none' then return nil, 'fenced' end
  if r and (outlived(r) or r.nonce ~= nonce or r.token ~= token) then return nil, 'fenced' end
  return r, why
end

-- expire lets Redis remove the record when no rule needs it any more. A begun
-- record that runs stays until somebody settles it: its lease says who may
-- write, never how long the record exists.
local function expire(r)
  local at = r.ends
  if r.state == 'running' then
    if r.begun then
      redis.call('PERSIST', key)
      return
    end
    at = at + r.keep
  end
  redis.call('PEXPIREAT', key, digits(math.ceil(at / 1000)))
end

-- changed tells the waiters of all processes.
local function changed(channel, id)
  redis.call('PUBLISH', channel, id)
end

local function flag(b)
  return b and '1' or '0'
end

-- result is the result of a record, '' unless it is done.
local function result(r)
  return r.state == 'done' and redis.call('HGET', key, 'result') or ''
end

-- view is the answer with the record; see view in scripts.go.
local function view(status, r, text)
  return {status, digits(now), r.state, r.scope, r.fp, r.token, r.gen, flag(r.begun),
    digits(r.since), digits(r.ends), r.meta, text or ''}
end
