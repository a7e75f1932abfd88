local nonce, token, retention, result, channel, id = unpack(ARGV)

local r, why = owned(nonce, token)
if why then return {why} end
if r.state == 'done' then
  -- A repeat. It writes what is there: WAIT promises something of its own
  -- connection's writes only.
  expire(r)
  return {'ok'}
end
if r.state ~= 'running' then return {'fenced'} end

r.state, r.ends = 'done', now + retention
redis.call('HSET', key, 'state', r.state, 'ends', digits(r.ends), 'result', result)
expire(r)
changed(channel, id)
return {'ok'}
