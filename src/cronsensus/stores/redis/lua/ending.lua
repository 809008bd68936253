-- The end of a session: its runs are cut off, to be claimed again, and its locks are freed.
-- needs: occurrences locks

-- Cut off a run whose session is dead or gave it up: it is pending again, unless it was cancelled, has crashed too often, or its
-- job has on_crash="fail" (it may have done a part of its work).
local function take_over(id, session, why, crashed, row)
  local job = read(job_key(row.job), 'name', 'on_crash', 'max_crashes')
  local crashes = (row.crashes or 0) + (crashed and 1 or 0)
  local reason = 'crashed: ' .. why
  local record_reason = crashed and reason or why
  record_run(id, row, crashed and 'crashed' or 'released', record_reason)
  if row.cancel then
    close(id, row, 'cancelled', { 'reason', row.cancel, 'crashes', crashes })
  elseif job.on_crash == 'fail' or (crashed and crashes >= tonumber(job.max_crashes)) then
    close(id, row, 'failed', { 'reason', reason, 'crashes', crashes })
  else
    requeue(id, row, due_again(row), { 'reason', record_reason, 'crashes', crashes })
  end
  return { id, job.name, row.key, row.token, session, row.state, record_reason }
end

-- End a session; returns its runs, which are cut off.
local function end_session(session, ended_as, why, crashed)
  local cut_off = {}
  for _, id in ipairs(call('ZRANGE', holds_key(session), 0, -1)) do
    local row = occurrence(id)
    if row.state == 'running' and row.session == session then
      -- A reserved run may not have started, so this counts as no crash. It is not reserved again.
      cut_off[#cut_off + 1] = try(take_over, id, session, why, crashed and not row.reserved, row)
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
  return cut_off
end
