-- needs: locks
local name, place, token, ttl = unpack(args, 1, 4)
if not lock_under(name, place, token) then
  return answer(false)
end
call('HSET', lock_key(name, place), 'until', later(ttl))
call('ZADD', SPACE .. 'leases', 'XX', later(ttl), place_of(name, place))
return answer(true)
