-- Pending occurrences become running, each under a new token.
-- needs: occurrences tokens

-- What starting needs to know of an occurrence.
local function pending_row(id)
  local row = read(
    occurrence_key(id),
    'job', 'key', 'origin', 'nominal', 'due', 'expires', 'priority', 'attempt', 'crashes', 'failures', 'payload', 'state'
  )
  row.id = id
  return row
end

-- Start occurrences for a live session and set its lease; taken `ahead`, each begins when it is due, and those behind the
-- first `limit` wait for free slots. Returns the claims, and the definitions that they are of.
local function start(chosen, session, lease, ahead, limit)
  local claims, specs, told = {}, {}, {}
  if #chosen == 0 then
    return claims, specs
  end
  local holder = read(session_key(session), 'node', 'number')
  local token = next_tokens(#chosen)
  for place, row in ipairs(chosen) do
    local id = row.id
    local key = occurrence_key(id)
    leave_pending(id, row)
    local attempt, given = (row.attempt or 0) + 1, whole(token)
    local begins = NOW
    if tonumber(row.due) > now then
      if ahead then
        begins = row.due
      else -- acquired before its time
        row.due = NOW
        call('HSET', key, 'due', NOW)
      end
    end
    if attempt > 1 then
      call('HDEL', key, 'reason', 'error')
    end
    local changes = {
      'state', 'running', 'attempt', attempt, 'token', given, 'session', session, 'node', holder.node, 'started', begins,
    }
    if limit and place > limit then
      changes[#changes + 1] = 'reason'
      changes[#changes + 1] = RESERVED
    end
    call('HSET', key, unpack(changes))
    gather('ZADD', RUNNING, id, id)
    gather('ZADD', holds_key(session), id, id)
    gather('HSET', of_job(row.job, 'running'), id, session)
    if SERIAL[row.origin] then
      gather('SADD', of_job(row.job, 'busy'), id)
    end
    if not told[row.job] then
      told[row.job] = true
      specs[#specs + 1] = { row.job, call('HGET', job_key(row.job), 'spec') }
    end
    claims[#claims + 1] = {
      id, row.job, row.key, row.origin, row.nominal, row.due, attempt, given, row.payload,
      tonumber(row.crashes or 0), tonumber(row.failures or 0),
    }
    token = token + 1
  end
  call('ZADD', SPACE .. 'holding', holder.number, session)
  set_lease(session, lease)
  return claims, specs
end
