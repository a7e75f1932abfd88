local nonce, token, how, replace, meta, channel, id = unpack(ARGV)

local r, why = owned(nonce, token)
if why then return {why} end
if r.state == 'free' and r.how == how then
  expire(r) -- a repeat; see Complete
  return {'ok'}
end
if r.state ~= 'running' then return {'fenced'} end

if how == 'abandon' then
  r.ends = math.min(r.ends, now)
  redis.call('HSET', key, 'ends', digits(r.ends))
else
  r.state, r.ends = 'free', now + r.keep
  redis.call('HSET', key, 'state', r.state, 'ends', digits(r.ends), 'how', how, 'begun', '0')
  if how == 'reject' then redis.call('HINCRBY', key, 'gen', 1) end
end
if replace == '1' then redis.call('HSET', key, 'meta', meta) end
expire(r)
changed(channel, id)
return {'ok'}
