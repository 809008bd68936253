-- The end of a session: its runs are cut off, to be claimed again, and its locks are freed.
-- needs: occurrences locks

-- With on_crash="fail" a run that was cut off is not run again: it may have done a part of its work.
local function take_over(id, session, why, crashed, row)
  local job = read(job_key(row.job), 'name', 'on_crash', 'max_crashes')
  local crashes = (row.crashes or 0) + (crashed and 1 or 0)
  local reason = 'crashed: ' .. why
  local told = crashed and reason or why
  record_run(id, row, crashed and 'crashed' or 'released', told)
  if row.cancel then
    close(id, row, 'cancelled', { 'reason', row.cancel, 'crashes', crashes })
  elseif job.on_crash == 'fail' or (crashed and crashes >= tonumber(job.max_crashes)) then
    close(id, row, 'failed', { 'reason', reason, 'crashes', crashes })
  else
    put_back(id, row, due_again(row), { 'reason', told, 'crashes', crashes })
  end
  return { id, job.name, row.key, row.token, session, row.state, told }
end

local function end_session(session, ended_as, why, crashed)
  local taken = {}
  for _, id in ipairs(call('ZRANGE', holds_key(session), 0, -1)) do
    local row = occurrence(id)
    if row.state == 'running' and row.session == session then
      -- A reserved run may not have started, so this counts as no crash. It is not reserved again.
      taken[#taken + 1] = try(take_over, id, session, why, crashed and not row.reserved, row)
    else
      gather('ZREM', holds_key(session), id)
    end
  end
  for _, text in ipairs(call('SMEMBERS', SPACE .. 'locks:' .. session)) do
    local name, place = name_and_place(text)
    free_lock(name, place, session)
  end
  -- Even if the row says that another session holds the run.
  call('DEL', holds_key(session))
  call('ZREM', SPACE .. 'holding', session)
  call('ZREM', OPEN, session)
  call('SREM', GUESTS, session)
  call('SREM', TURNING, session)
  call('DEL', SPACE .. 'functions:' .. session)
  call('HSET', session_key(session), 'ended', NOW, 'ended_as', ended_as, 'ended_why', why)
  call('ZADD', SPACE .. 'ended', NOW, session)
  return taken
end
