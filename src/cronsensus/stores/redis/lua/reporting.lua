-- The report of a node about its runs: notes, ends, released claims. Each is written only if its occurrence is still
-- running under its token, which is compared in the same step; the second of two results finds another token, or the
-- state after the first.
-- needs: ending

local function keep_note(id, token, progress, lines, session, ran)
  local row = read(occurrence_key(id), 'state', 'token', 'session', 'attempt', 'started', 'reserved')
  if not is_current(row, token, session) then
    return false
  end
  if ran and begin_reserved(row, ran) then
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

-- Answer for a run that is not current: if this token ended it, repeat the first answer; else the end is not accepted.
local function answer_again(id, row, token, session, unrecorded)
  if unrecorded and row.token == token and row.state == 'pending' then
    return { true, 'pending' }
  end
  if row.token == token and row.state ~= 'running' and (not session or session == row.session) then
    local became = ANSWERS[call('HGET', occurrence_key(id), 'end')]
    if became then
      return { true, became }
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

-- `record` is the end under which the attempt is recorded, or false. The next state is {'final', state, result},
-- {'again', wait, failed, note} or {'parked', on, listed}.
local function settle(id, token, session, ran, record, reason, problem, follows)
  local row = occurrence(id)
  if not row.state then
    return { false, false }
  end
  if not is_current(row, token, session) then
    return answer_again(id, row, token, session, not record)
  end
  local kind, what, more, note = unpack(follows, 1, 4)
  if row.cancel and kind ~= 'final' then
    kind, what, more, reason = 'final', 'cancelled', false, row.cancel -- asked to stop: it does not run again
  end
  local reserved = begin_reserved(row, ran)
  local changes = {}
  local function change(name, value)
    if value then
      changes[#changes + 1] = name
      changes[#changes + 1] = value
    end
  end
  change('reason', reason)
  change('error', problem)
  if kind == 'final' then
    change('started', reserved and row.started)
    change('result', more)
    change('end', what)
    close(id, row, what, changes)
    return { true, what }
  end
  if record then
    record_run(id, row, record, reason, problem)
  end
  call('HDEL', occurrence_key(id), 'fingerprint')
  if kind == 'again' and more then
    change('failures', (row.failures or 0) + 1)
    put_back(id, row, later(what), changes)
    return { true, 'pending' }
  end
  row.attempt, row.expires = whole(row.attempt - 1), nil
  change('attempt', row.attempt)
  call('HDEL', occurrence_key(id), 'expires', 'error', 'note')
  if kind == 'parked' then
    call('HDEL', occurrence_key(id), 'failures', 'crashes')
    row.parked = what
    change('parked', what)
    change('listed', more)
    put_back(id, row, whole(LAST), changes)
  else
    if note then
      call('HDEL', occurrence_key(id), 'failures')
      change('note', note)
    end
    put_back(id, row, later(what), changes)
  end
  return { true, 'pending' }
end

-- A claim that had started (`why` is given) ends like a takeover; for any other the attempt does not count.
local function give_back(id, token, session, why, crashed)
  local row = occurrence(id)
  if not is_current(row, token, session) then
    return false
  end
  if why then
    take_over(id, row.session, why, crashed, row)
    return true
  end
  record_run(id, row, 'released')
  row.attempt = whole(row.attempt - 1)
  if row.cancel then
    close(id, row, 'cancelled', { 'reason', row.cancel, 'attempt', row.attempt })
  else
    put_back(id, row, due_again(row), { 'attempt', row.attempt })
  end
  return true
end
