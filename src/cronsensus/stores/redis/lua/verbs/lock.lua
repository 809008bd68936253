-- Two who want a place in the same instant run one after the other; the second finds it held.
-- needs: locks tokens
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
if not schema then
  call('HSET', META, 'schema', SCHEMA)
end
if row['until'] then
  free_lock(name, place, row.session)
end
local key, at, token, lease_end = lock_key(name, place), place_of(name, place), whole(next_tokens(1)), later(ttl)
call('ZADD', SPACE .. 'locks', 0, at)
if session then
  call('HSET', key, 'holder', holder, 'token', token, 'acquired', NOW, 'until', lease_end, 'session', session)
  call('SADD', SPACE .. 'locks:' .. session, at)
else
  call('HSET', key, 'holder', holder, 'token', token, 'acquired', NOW, 'until', lease_end)
  call('ZADD', SPACE .. 'leases', lease_end, at)
end
return answer({ place, token })
