-- Two who want a place in the same instant run one after the other; the second finds it held.
-- needs: starting locks
local name, holder, ttl, session, limit = unpack(args, 1, 5)
if session and not alive(session) then
  return refuse('LEASELOST')
end
local place, row = -1, nil
repeat
  place = place + 1
  row = read(lock_key(name, place), 'until', 'session')
until place >= limit or not is_held(row)
if place >= limit then
  return answer(false)
end
call('HSET', META, 'schema', SCHEMA)
if row['until'] then
  free_lock(name, place, row.session)
end
local token, lease_end = whole(next_tokens(1)), later(ttl)
call('HSET', lock_key(name, place), 'holder', holder, 'token', token, 'acquired', NOW, 'until', lease_end)
call('ZADD', SPACE .. 'locks', 0, place_of(name, place))
if session then
  call('HSET', lock_key(name, place), 'session', session)
  call('SADD', SPACE .. 'locks:' .. session, place_of(name, place))
else
  call('ZADD', SPACE .. 'leases', lease_end, place_of(name, place))
end
return answer({ place, token })
