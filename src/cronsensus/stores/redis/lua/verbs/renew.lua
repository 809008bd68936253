-- needs: sessions
even_if_full()
local session, lease, idle_lease = unpack(args, 1, 3)
if not alive(session) then
  return answer({ NOW, false, {}, false, {} })
end
local held = call('ZRANGE', holds_key(session), 0, -1)
local length = #held > 0 and lease or idle_lease
set_lease(session, length)
local cancel, runs = {}, {}
for index, id in ipairs(held) do
  local why, token = unpack(call('HMGET', SPACE .. 'occurrence:' .. id, 'cancel', 'token'))
  runs[index] = { id, token }
  if why then
    cancel[#cancel + 1] = { id, why }
  end
end
return answer({ NOW, length, cancel, call('HEXISTS', session_key(session), 'draining') == 1, runs })
