-- Open a session under an id and set its lease; if it is open already, only its lease is set.
-- needs: sessions releases
local session, node, spec, release, lease, declares = unpack(args, 1, 6)
ensure_identity()
if call('EXISTS', session_key(session)) == 1 then
  if not is_session_alive(session) then
    return refuse('LEASELOST')
  end
else
  local number = integer_text(call('HINCRBY', META, 'session', 1))
  call('HSET', META, 'schema', SCHEMA, 'newest', session)
  call('HSET', session_key(session), 'spec', spec, 'node', node, 'number', number, 'started', NOW)
  if declares then
    call('HSET', session_key(session), 'declares', declares)
  end
  call('ZADD', SPACE .. 'sessions', number, session)
  if release then
    call('HSET', session_key(session), 'release', release)
    record_release(release)
    call('SADD', TURNING, session)
  else
    call('SADD', GUESTS, session)
  end
end
set_lease(session, lease)
return answer(NOW)
