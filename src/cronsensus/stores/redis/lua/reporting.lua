-- The report of a node about its runs: notes, ends, released claims. Each is written only if its occurrence is still running
-- under its token. So the second of two ends finds another token, or the state that the first one wrote.
-- needs: ending

-- Record the progress and the log lines of a run; false: it is not current.
local function record_note(id, token, progress, lines, session, ran)
  local row = read(occurrence_key(id), 'state', 'token', 'session', 'attempt', 'started', 'reserved')
  if not is_current(row, token, session) then
    return false
  end
  if ran and start_reserved(row, ran) then
    call('HSET', occurrence_key(id), 'started', row.started)
    call('HDEL', occurrence_key(id), 'reserved')
  end
  if progress then
    call('HSET', occurrence_key(id), 'progress', progress)
  end
  for _, line in ipairs(lines) do
    call('RPUSH', SPACE .. 'log:' .. id, row.attempt .. ' ' .. line)
  end
  return true
end

local ANSWERS = {
  succeeded = 'succeeded', failed = 'failed', cancelled = 'cancelled', skipped = 'skipped', retry = 'pending',
  snoozed = 'pending',
}

-- Answer a report about a run that is not current: if it was ended under this token, repeat the first answer; else the end is
-- not accepted.
local function answer_again(id, row, token, session, unrecorded)
  if unrecorded and row.token == token and row.state == 'pending' then
    return { true, 'pending' }
  end
  if row.token == token and row.state ~= 'running' and (not session or session == row.session) then
    local outcome = ANSWERS[call('HGET', occurrence_key(id), 'end')]
    if outcome then
      return { true, outcome }
    end
  end
  for _, text in ipairs(call('LRANGE', SPACE .. 'attempts:' .. id, 0, -1)) do
    local run = cjson.decode(text)
    if run[2] == token and ANSWERS[run[7]] and (not session or session == run[3]) then
      return { true, ANSWERS[run[7]] }
    end
  end
  return { false, row.state }
end

-- Record the end of an attempt, and the next state of its occurrence: {'final', state, result}, {'again', wait, failed, note}
-- or {'parked', on, listed}. `recorded_end` is the end under which the attempt is recorded; false: it is not. Returns whether
-- the end was accepted, and the state after it.
local function record_end(id, token, session, ran, recorded_end, reason, error_text, next_state)
  local row = occurrence(id)
  if not row.state then
    return { false, false }
  end
  if not is_current(row, token, session) then
    return answer_again(id, row, token, session, not recorded_end)
  end
  local next_kind, value, extra, note = unpack(next_state, 1, 4)
  if row.cancel and next_kind ~= 'final' then
    next_kind, value, extra, reason = 'final', 'cancelled', false, row.cancel -- asked to stop: it does not run again
  end
  local reserved = start_reserved(row, ran)
  local changes = {}
  local function set(name, value)
    if value then
      changes[#changes + 1] = name
      changes[#changes + 1] = value
    end
  end
  set('reason', reason)
  set('error', error_text)
  if next_kind == 'final' then
    set('started', reserved and row.started)
    set('result', extra)
    set('end', value)
    close(id, row, value, changes)
    return { true, value }
  end
  if recorded_end then
    record_run(id, row, recorded_end, reason, error_text)
  end
  call('HDEL', occurrence_key(id), 'fingerprint')
  if next_kind == 'again' and extra then
    set('failures', (row.failures or 0) + 1)
    requeue(id, row, now_plus(value), changes)
    return { true, 'pending' }
  end
  row.attempt, row.expires = integer_text(row.attempt - 1), nil
  set('attempt', row.attempt)
  call('HDEL', occurrence_key(id), 'expires', 'error', 'note')
  if next_kind == 'parked' then
    call('HDEL', occurrence_key(id), 'failures', 'crashes')
    row.parked = value
    set('parked', value)
    set('listed', extra)
    requeue(id, row, integer_text(LATEST_TIME), changes)
  else
    if note then
      call('HDEL', occurrence_key(id), 'failures')
      set('note', note)
    end
    requeue(id, row, now_plus(value), changes)
  end
  return { true, 'pending' }
end

-- Release a claim. If it had started, `why` is given, and it ends like a takeover; else its attempt does not count.
local function release_claim(id, token, session, why, crashed)
  local row = occurrence(id)
  if not is_current(row, token, session) then
    return false
  end
  if why then
    take_over(id, row.session, why, crashed, row)
    return true
  end
  record_run(id, row, 'released')
  row.attempt = integer_text(row.attempt - 1)
  if row.cancel then
    close(id, row, 'cancelled', { 'reason', row.cancel, 'attempt', row.attempt })
  else
    requeue(id, row, due_again(row), { 'attempt', row.attempt })
  end
  return true
end
