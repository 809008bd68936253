-- Record whether this server shows the sign of an open session, if its process reports that it shows one.
-- needs: sessions
local session, shown = unpack(args, 1, 2)
if not call('ZSCORE', OPEN, session) then
  return answer(false)
end
if shown then
  local heard = redis.pcall('PUBSUB', 'NUMSUB', SPACE .. 'sign:' .. session)
  shown = not heard.err and heard[2] > 0
end
call('HSET', session_key(session), 'shown', shown and '1' or '0')
return answer(shown)
