-- End a session in order: its runs are released and its locks are freed.
-- needs: ending
allow_writes_when_full()
local session = args[1]
if not call('ZSCORE', OPEN, session) then
  return answer({})
end
return answer(end_session(session, 'closed', 'closed in order', false))
