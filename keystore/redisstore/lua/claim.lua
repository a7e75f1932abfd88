local fp, scope, nonce, lease, keep, begun, takeover, meta, channel, id = unpack(ARGV)

local r, why = load()
if why and why ~= 'none' then return {why} end
local exists = r ~= nil
if r and outlived(r) then r = nil end

if not r then
  -- Acquired.
elseif r.state == 'free' then
  if r.nonce == nonce then return {'fenced'} end
elseif r.fp ~= fp then
  return view('mismatch', r)
elseif r.state == 'done' then
  return view('completed', r, result(r))
elseif r.nonce == nonce then
  -- Acquired before, by this very claim.
elseif r.ends > now then
  return view('in-flight', r)
elseif r.begun and takeover == '0' then
  return view('unresolved', r)
end

local first = not r or r.state ~= 'running'
local newowner = first or r.nonce ~= nonce
if not exists then
  -- The clock makes the tokens rise even where the record was removed.
  redis.call('HSET', key, 'token', digits(now))
elseif newowner then
  redis.call('HINCRBY', key, 'token', 1)
end
r = r or {gen = '0', begun = false, meta = ''} -- an old result goes with the next one
if first then
  r.state, r.since, r.scope, r.fp = 'running', now, scope, fp
end
if r.meta == '' then r.meta = meta end
r.begun = r.begun or begun == '1'
r.token = redis.call('HGET', key, 'token')
r.ends, r.keep = now + lease, tonumber(keep)
redis.call('HSET', key, 'v', '1', 'state', 'running', 'scope', r.scope, 'fp', r.fp, 'nonce', nonce,
  'gen', r.gen, 'begun', flag(r.begun), 'since', digits(r.since), 'ends', digits(r.ends),
  'keep', keep, 'how', '', 'meta', r.meta)
expire(r)
if exists and newowner then changed(channel, id) end
return view('acquired', r)
