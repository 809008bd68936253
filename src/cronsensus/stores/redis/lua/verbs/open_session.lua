-- needs: sessions releases
local session, node, spec, release, lease, declares = unpack(args, 1, 6)
have_identity()
if call('EXISTS', session_key(session)) == 1 then
  if not alive(session) then
    return refuse('LEASELOST')
  end
else
  local number = whole(call('HINCRBY', META, 'session', 1))
  call('HSET', META, 'schema', SCHEMA, 'newest', session)
  call('HSET', session_key(session), 'spec', spec, 'node', node, 'number', number, 'started', NOW)
  if declares then
    call('HSET', session_key(session), 'declares', declares)
  end
  call('ZADD', SPACE .. 'sessions', number, session)
  if release then
    call('HSET', session_key(session), 'release', release)
    know_release(release)
    call('SADD', TURNING, session)
  else
    call('SADD', GUESTS, session)
  end
end
set_lease(session, lease)
return answer(NOW)
