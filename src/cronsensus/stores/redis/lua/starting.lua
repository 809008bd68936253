-- Pending occurrences become running, each under a new token.
-- needs: occurrences tokens firing

-- What starting needs to know of an occurrence.
local function pending_row(id)
  local row = read(
    occurrence_key(id),
    'job', 'key', 'origin', 'nominal', 'due', 'expires', 'priority', 'attempt', 'crashes', 'failures', 'payload', 'state'
  )
  row.id = id
  return row
end

-- Let others see that a session holds runs, and set its lease.
local function hold(session, number, lease)
  call('ZADD', SPACE .. 'holding', number, session)
  set_lease(session, lease)
end

-- Start occurrences for a live session and set its lease; taken `ahead`, each begins when it is due, and those behind the
-- first `limit` wait for free slots. Returns the claims, and the definitions that they are of.
local function start(chosen, session, lease, ahead, limit)
  local claims, specs, told = {}, {}, {}
  if #chosen == 0 then
    return claims, specs
  end
  local holder = holder_of(session)
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
    row.session = session
    enter_running(id, row)
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
  hold(session, holder.number, lease)
  return claims, specs
end

-- Carry out a plan with one occurrence that may start at once, and start it: then it stands in no index of what waits.
-- Returns the claim and the definition; nil where something is not as it mostly is, and then nothing is left but
-- numbers that were given.
local function fire_and_start(plan, session, lease, til)
  local job, planned = plan[1], plan[10][1]
  local nominal, key, due, expires = unpack(planned, 1, 4)
  if #call('ZRANGEBYSCORE', PENDING, '-inf', whole(til), 'LIMIT', 0, 1) > 0 then
    return nil
  end
  local row, last = still_holds(plan, til), tonumber(last_occurrence or 0)
  if not row or not last or whole(last) ~= (last_occurrence or '0') or row.concurrency or tonumber(due) > til
    or call('SISMEMBER', SPACE .. 'functions:' .. session, row['function']) == 0 then
    return nil
  end
  local holder, id = holder_of(session), string.format(NUMBER, last + 1)
  local token = whole(next_tokens(1, 'occurrence', whole(last + 1)))
  local made = create(job, {
    id = id, key = key, origin = 'schedule', nominal = nominal, due = due, expires = expires, priority = row.priority,
    payload = row.payload, keep = row.keep, attempt = 1, token = token, session = session, node = holder.node,
    started = tonumber(due) > now and due or NOW,
  })
  if not made then
    return nil
  end
  set_due(job, plan[7], true, plan[6])
  send()
  hold(session, holder.number, lease)
  return { { id, job, key, 'schedule', nominal, due, 1, token, row.payload, 0, 0 }, { job, row.spec } }
end
