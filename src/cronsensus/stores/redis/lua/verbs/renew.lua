-- needs: sessions
even_if_full()
local session, lease, idle_lease = unpack(args, 1, 3)
if not alive(session) then
  return answer({ NOW, false, {}, false, {}, tonumber(call('HGET', session_key(session), 'beats') or 0), identity or '' })
end
local cancel, runs = {}, {}
for _, id in ipairs(call('ZRANGE', holds_key(session), 0, -1)) do
  local row = read(SPACE .. 'occurrence:' .. id, 'cancel', 'token', 'state', 'session')
  local why, token, state, holder = row.cancel, row.token, row.state, row.session
  if state ~= 'running' or holder ~= session then
    call('ZREM', holds_key(session), id) -- see occurrences.lua
  else
    runs[#runs + 1] = { id, token }
    if why then
      cancel[#cancel + 1] = { id, why }
    end
  end
end
if #runs == 0 then
  call('ZREM', SPACE .. 'holding', session)
end
local length = #runs > 0 and lease or idle_lease
set_lease(session, length)
local beats = call('HINCRBY', session_key(session), 'beats', 1)
return answer({
  NOW, length, cancel, call('HEXISTS', session_key(session), 'draining') == 1, runs, beats, identity or '',
})
