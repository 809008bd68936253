-- Each outcome lands only if its occurrence is still running under its token, which is asked in this one step; a result
-- that comes second finds another token, or the state that the first one left.
-- needs: occurrences

local ANSWERS = {
  succeeded = 'succeeded', failed = 'failed', cancelled = 'cancelled', skipped = 'skipped', retry = 'pending',
}

-- Answer for a run that is not current: as the first time if this token finished it, else no.
local function answer_again(id, row, token, session)
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

local function settle(id, token, state, reason, result, problem, wait, session)
  local row = occurrence(id)
  if not row.state then
    return { false, false }
  end
  if not is_current(row, token, session) then
    return answer_again(id, row, token, session)
  end
  if state == 'pending' and row.cancel then
    state, reason = 'cancelled', row.cancel -- asked to stop: it does not come back
  end
  local changes = {}
  local function change(name, value)
    if value then
      changes[#changes + 1] = name
      changes[#changes + 1] = value
    end
  end
  change('reason', reason)
  change('error', problem)
  if state == 'pending' then
    record_run(id, row, 'retry', reason, problem)
    change('failures', (row.failures or 0) + 1)
    call('HDEL', occurrence_key(id), 'fingerprint')
    put_back(id, row, later(wait), changes)
  else
    change('result', result)
    change('end', state)
    close(id, row, state, changes)
  end
  return { true, state }
end

even_if_full()
local answers = {}
for index, outcome in ipairs(args[1]) do
  answers[index] = try(settle, unpack(outcome, 1, 8)) or { false, false }
end
return answer(answers)
