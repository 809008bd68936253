-- needs: sessions
-- Which of these sessions show a sign of life; of those that do not, only the ones that have recorded one. A replica gives
-- no answer, nor does a server that does not permit this user to read signs.
local sessions = args[1]
local server = redis.pcall('INFO', 'replication')
if type(server) == 'table' or not string.find(server, 'role:master', 1, true) then
  return answer({})
end
local found = {}
for _, session in ipairs(sessions) do
  local heard = redis.pcall('PUBSUB', 'NUMSUB', SPACE .. 'sign:' .. session)
  if heard.err then
    return answer({})
  end
  if heard[2] > 0 or read(session_key(session), 'shown').shown == '1' then
    found[#found + 1] = { session, heard[2] > 0 }
  end
end
return answer(found)
