-- Mark a live session as draining: it claims nothing more.
-- needs: sessions
local session, by, why = unpack(args, 1, 3)
if not is_session_alive(session) then
  return answer(false)
end
call('HSET', session_key(session), 'draining', 1)
record(by, 'drain', session, why, '{}')
return answer(true)
