-- Renew the lease of a session; returns which runs it holds, and which of them it is asked to cancel.
-- needs: sessions
local session, lease, idle_lease = unpack(args, 1, 3)
if not is_session_alive(session) then
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
-- Either is a write that a server without free memory allows. After it the lease can be set.
if #runs == 0 then
  call('ZREM', SPACE .. 'holding', session)
else
  allow_writes_when_full()
end
local length = #runs > 0 and lease or idle_lease
local row = read(session_key(session), 'draining', 'beats')
local beats = (tonumber(row.beats) or 0) + 1
set_lease(session, length, 'beats', integer_text(beats))
return answer({ NOW, length, cancel, row.draining and true, runs, beats, identity or '' })
