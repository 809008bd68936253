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

-- Add a session to those that hold runs, and set its lease.
local function record_holder(session, number, lease)
  call('ZADD', SPACE .. 'holding', number, session)
  set_lease(session, lease)
end

-- Start pending occurrences for a live session, and set its lease. If they are claimed `ahead` of their time, each starts when
-- it is due. Those after the first `limit` are reserved. Returns the claims, and the definitions of their jobs.
local function start_runs(chosen, session, lease, ahead, limit)
  local claims, specs, spec_sent = {}, {}, {}
  if #chosen == 0 then
    return claims, specs
  end
  local holder = holder_of(session)
  local token = next_tokens(#chosen)
  for place, row in ipairs(chosen) do
    local id = row.id
    local key = occurrence_key(id)
    leave_pending(id, row)
    local attempt, token_text = (row.attempt or 0) + 1, integer_text(token)
    local started_at = NOW
    if tonumber(row.due) > now then
      if ahead then
        started_at = row.due
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
      'state', 'running', 'attempt', attempt, 'token', token_text, 'session', session, 'node', holder.node, 'started', started_at,
    }
    if limit and place > limit then
      changes[#changes + 1] = 'reserved'
      changes[#changes + 1] = '1'
    end
    call('HSET', key, unpack(changes))
    row.session = session
    enter_running(id, row)
    if not spec_sent[row.job] then
      spec_sent[row.job] = true
      specs[#specs + 1] = { row.job, call('HGET', job_key(row.job), 'spec') }
    end
    claims[#claims + 1] = {
      id, row.job, row.key, row.origin, row.nominal, row.due, attempt, token_text, row.payload,
      tonumber(row.crashes or 0), tonumber(row.failures or 0), row.parent, row.listed, row.created, row.note,
    }
    token = token + 1
  end
  record_holder(session, holder.number, lease)
  return claims, specs
end

-- Carry out a plan with one occurrence, and start that. Returns a list with its claim; the list is empty if an occurrence with
-- its key existed.
local function start_planned_run(plan, row, id, token, session)
  local job, nominal, key, due, expires = plan[1], unpack(plan[10][1], 1, 4)
  local is_created = create(job, {
    id = id, key = key, origin = 'schedule', nominal = nominal, due = due, expires = expires, priority = row.priority,
    payload = row.payload, keep = row.keep, attempt = 1, token = token, session = session,
    node = holder_of(session).node, started = tonumber(due) > now and due or NOW,
  })
  set_due(job, plan[7], true, plan[6], gather)
  return { is_created and { id, job, key, 'schedule', nominal, due, 1, token, row.payload, 0, 0, false, false, NOW, false } }
end

-- Highest priority first, then earliest due, then oldest.
local function claimed_before(run, other_run)
  if run.priority ~= other_run.priority then
    return run.priority > other_run.priority
  end
  local due, other_due = tonumber(run.claim[6]), tonumber(other_run.claim[6])
  return due < other_due or (due == other_due and run.claim[1] < other_run.claim[1])
end

-- Carry out plans with one occurrence each, and start these without indexing them as pending. This is the usual case: all may
-- start at once. Returns which plans were carried out, the claims, and the definitions of their jobs. In any other case it
-- writes nothing and returns nil.
local function fire_and_start(plans, session, lease, due_by)
  local last = tonumber(last_occurrence or 0)
  if not last or integer_text(last) ~= (last_occurrence or '0')
    or #call('ZRANGEBYSCORE', PENDING, '-inf', integer_text(due_by), 'LIMIT', 0, 1) > 0 then
    return nil
  end
  local rows, seen_jobs, count = {}, {}, 0
  for index, plan in ipairs(plans) do
    local job, row = plan[1], try(read_if_unchanged, plan, due_by) or false
    local due, expires = unpack(plan[10][1], 3, 4)
    if seen_jobs[job] or tonumber(due) > due_by or (expires and tonumber(expires) < now)
      or (row and (row.concurrency or row['function'] ~= plan[13])) then
      return nil
    end
    rows[index], seen_jobs[job], count = row, true, count + (row and 1 or 0)
  end
  local won, started, token = {}, {}, count > 0 and next_tokens(count, 'occurrence', integer_text(last + count))
  for index, row in ipairs(rows) do
    local claims_of_plan = nil
    if row then
      last = last + 1
      claims_of_plan = try(start_planned_run, plans[index], row, string.format(NUMBER, last), integer_text(token), session)
      token = token + 1
    end
    won[index] = claims_of_plan ~= nil
    if claims_of_plan and claims_of_plan[1] then
      started[#started + 1] = { claim = claims_of_plan[1], spec = row.spec, priority = tonumber(row.priority) }
    end
  end
  send()
  local claims, specs = {}, {}
  if #started > 0 then
    record_holder(session, holder_of(session).number, lease)
    table.sort(started, claimed_before)
  end
  for place, run in ipairs(started) do
    claims[place], specs[place] = run.claim, { run.claim[2], run.spec }
  end
  return won, claims, specs
end
