-- Pending occurrences become running, each under a new token.
-- needs: occurrences tokens firing

-- The fields of an occurrence that starting needs.
local function pending_row(id)
  local row = read(
    occurrence_key(id),
    'job', 'key', 'origin', 'nominal', 'due', 'expires', 'level', 'attempt', 'crashes', 'failures', 'payload', 'state',
    'parent', 'listed', 'reason', 'parked', 'created', 'note'
  )
  row.id = id
  return row
end

-- Index a session that holds runs, and set its lease.
local function hold(session, number, lease)
  call('ZADD', SPACE .. 'holding', number, session)
  set_lease(session, lease)
end

-- Start occurrences for a live session and set its lease; claimed `ahead`, each starts when it is due, and those after the
-- first `limit` wait for free slots. Returns the claims, and their definitions.
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
    -- A snoozed attempt was not counted, and left its reason.
    if attempt > 1 or row.reason or row.parked then
      call('HDEL', key, 'reason', 'error', 'parked')
    end
    local changes = {
      'state', 'running', 'attempt', attempt, 'token', given, 'session', session, 'node', holder.node, 'started', begins,
    }
    if limit and place > limit then
      changes[#changes + 1] = 'reserved'
      changes[#changes + 1] = '1'
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
      tonumber(row.crashes or 0), tonumber(row.failures or 0), row.parent, row.listed, row.created, row.note,
    }
    token = token + 1
  end
  hold(session, holder.number, lease)
  return claims, specs
end

-- Carry out a plan with one occurrence, and start that. Returns a list of its claim; empty: an occurrence
-- with its key was there.
local function start_planned(plan, row, id, token, session)
  local job, nominal, key, due, expires = plan[1], unpack(plan[10][1], 1, 4)
  local made = create(job, {
    id = id, key = key, origin = 'schedule', nominal = nominal, due = due, expires = expires, priority = row.priority,
    payload = row.payload, keep = row.keep, attempt = 1, token = token, session = session,
    node = holder_of(session).node, started = tonumber(due) > now and due or NOW,
  })
  set_due(job, plan[7], true, plan[6], gather)
  return { made and { id, job, key, 'schedule', nominal, due, 1, token, row.payload, 0, 0, false, false, NOW, false } }
end

-- Highest priority first, then earliest due, then oldest.
local function goes_before(one, other)
  if one.priority ~= other.priority then
    return one.priority > other.priority
  end
  local due, other_due = tonumber(one.claim[6]), tonumber(other.claim[6])
  return due < other_due or (due == other_due and one.claim[1] < other.claim[1])
end

-- Carry out plans with one occurrence each, and start these without indexing them as pending; for the usual case, in which
-- all may start at once. Returns which plans were carried out, the claims, and their definitions; nil in any other case,
-- and then nothing was written.
local function fire_and_start(plans, session, lease, til)
  local last = tonumber(last_occurrence or 0)
  if not last or whole(last) ~= (last_occurrence or '0')
    or #call('ZRANGEBYSCORE', PENDING, '-inf', whole(til), 'LIMIT', 0, 1) > 0 then
    return nil
  end
  local rows, seen, count = {}, {}, 0
  for index, plan in ipairs(plans) do
    local job, row = plan[1], try(still_holds, plan, til) or false
    local due, expires = unpack(plan[10][1], 3, 4)
    if seen[job] or tonumber(due) > til or (expires and tonumber(expires) < now)
      or (row and (row.concurrency or row['function'] ~= plan[13])) then
      return nil
    end
    rows[index], seen[job], count = row, true, count + (row and 1 or 0)
  end
  local won, started, token = {}, {}, count > 0 and next_tokens(count, 'occurrence', whole(last + count))
  for index, row in ipairs(rows) do
    local begun = nil
    if row then
      last = last + 1
      begun = try(start_planned, plans[index], row, string.format(NUMBER, last), whole(token), session)
      token = token + 1
    end
    won[index] = begun ~= nil
    if begun and begun[1] then
      started[#started + 1] = { claim = begun[1], spec = row.spec, priority = tonumber(row.priority) }
    end
  end
  send()
  local claims, specs = {}, {}
  if #started > 0 then
    hold(session, holder_of(session).number, lease)
    table.sort(started, goes_before)
  end
  for place, one in ipairs(started) do
    claims[place], specs[place] = one.claim, { one.claim[2], one.spec }
  end
  return won, claims, specs
end
