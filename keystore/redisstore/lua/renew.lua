local nonce, token, lease, begun, replace, meta = unpack(ARGV)

local r, why = owned(nonce, token)
if why then return {why} end
if r.state ~= 'running' then return {'fenced'} end

if replace == '1' then redis.call('HSET', key, 'meta', meta) end
r.begun = r.begun or begun == '1'
r.ends = now + lease
redis.call('HSET', key, 'ends', digits(r.ends), 'begun', flag(r.begun))
expire(r)
return {'ok'}
