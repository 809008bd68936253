-- Move the end of a lock's lease, for the holder of its token only.
-- needs: locks
allow_writes_when_full()
local name, place, token, holder, session, ttl = unpack(args, 1, 6)
if not lock_under(name, place, token, holder, session) then
  return answer(false)
end
call('HSET', lock_key(name, place), 'until', now_plus(ttl))
call('ZADD', SPACE .. 'leases', 'XX', now_plus(ttl), place_of(name, place))
return answer(true)
