-- Which of these sessions show a sign of life; of those that do not, only the ones that have recorded one. A replica gives
-- no answer, nor does a server that does not permit this user to read signs.
-- needs: sessions
local sessions = args[1]
local server = redis.pcall('INFO', 'replication')
if type(server) == 'table' or not string.find(server, 'role:master', 1, true) then
  return answer({})
end
local signs = {}
for _, session in ipairs(sessions) do
  local subscribers = redis.pcall('PUBSUB', 'NUMSUB', SPACE .. 'sign:' .. session)
  if subscribers.err then
    return answer({})
  end
  if subscribers[2] > 0 or read(session_key(session), 'shown').shown == '1' then
    signs[#signs + 1] = { session, subscribers[2] > 0 }
  end
end
return answer(signs)
