local scope, unresolved = unpack(ARGV)

local r, why = load()
if why then return {why} end
if outlived(r) or (scope ~= '' and r.scope ~= scope)
    or (unresolved == '1' and not (r.state == 'running' and r.begun and r.ends <= now)) then
  return {'none'}
end
return view('found', r, result(r))
