-- needs: jobs
local job = call('HGET', SPACE .. 'names', args[1])
if not job then
  return answer(false)
end
local state, row = state_row(job)
return answer(not row.paused_at and not row.retired_at and state)
