-- The changes of an occurrence: of its row, and of its entries in every index.
-- needs: indexes sessions

local NUMBER = '%014.0f' -- of an occurrence
local PENDING, EXPIRING, RUNNING, IDS = SPACE .. 'pending', SPACE .. 'expiring', SPACE .. 'running', SPACE .. 'ids'
local SERIAL = { schedule = true, manual = true, backfill = true }
-- The states with an index; nearly all occurrences are succeeded, which has none.
local INDEXED = { failed = true, cancelled = true, skipped = true, missed = true }

local PARKED = SPACE .. 'parked'
local UNWELL = { failed = true, missed = true, cancelled = true }

local function occurrence_key(id)
  return SPACE .. 'occurrence:' .. id
end

-- The fields of an occurrence that the changes below need.
local function occurrence(id)
  return read(
    occurrence_key(id),
    'job', 'key', 'origin', 'state', 'due', 'expires', 'priority', 'level', 'attempt', 'token', 'session', 'node', 'started',
    'crashes', 'failures', 'cancel', 'parent', 'listed', 'parked', 'reserved'
  )
end

-- The items of a batch in a state. A set is deleted with its last member.
local function items_key(batch, state)
  return SPACE .. 'items:' .. batch .. ':' .. state
end

local function enter_items(id, row, state)
  if row.parent then
    gather('ZADD', items_key(row.parent, state), id, id)
  end
end

local function leave_items(id, row, state)
  if row.parent then
    gather('ZREM', items_key(row.parent, state), id)
  end
end

-- If a run is reserved, set when it started: `ran` microseconds ago. Returns whether it is reserved.
local function start_reserved(row, ran)
  local reserved = row.state == 'running' and row.reserved
  if reserved then
    row.started = integer_text(math.max(tonumber(row.started), now - (tonumber(ran) or 0)))
  end
  return reserved
end

-- Whether an occurrence runs under the token and, if given, for the session.
local function is_current(row, token, session)
  return row.state == 'running' and row.token == token and (not session or row.session == session)
end

local function line_of(row)
  return row.job .. (SERIAL[row.origin] and ':s' or ':w')
end

-- If an append-only file ends in the middle of a transaction, Redis 7.0 starts without that transaction, but leaves its
-- beginning in the file; the next start carries out that half. Then an index may have entries that contradict their rows:
-- an ended occurrence, another job's, or none. No node may run such an entry again and again, or wait for it. The row is
-- right: the first script that reads a wrong entry removes it.
local function drop_unless_running(id, index, command)
  if read(occurrence_key(id), 'state').state == 'running' then
    return false
  end
  gather(command, index, id)
  return true
end

local function drop_unless_active(id, index)
  local state = read(occurrence_key(id), 'state').state
  if state ~= 'pending' and state ~= 'running' then
    gather('ZREM', index, id)
    gather('ZREM', PENDING, id)
    gather('ZREM', EXPIRING, id)
  end
end

local function enter_pending(id, row)
  if not tonumber(row.level) or not tonumber(row.due) then
    error('not a number', 0)
  end
  gather('ZADD', PENDING, row.due, id)
  change_line('ZADD', row.level, line_of(row), row.due, id)
  if row.expires and tonumber(row.attempt or 0) == 0 then
    gather('ZADD', EXPIRING, row.expires, id)
  end
  if row.parked then
    gather('ZADD', PARKED, id, id)
  end
  enter_items(id, row, 'pending')
end

local function leave_pending(id, row)
  gather('ZREM', PENDING, id)
  change_line('ZREM', row.level, line_of(row), id)
  if row.expires then
    gather('ZREM', EXPIRING, id)
  end
  if row.parked then
    gather('ZREM', PARKED, id)
  end
  leave_items(id, row, 'pending')
end

local function enter_running(id, row)
  gather('ZADD', RUNNING, id, id)
  gather('ZADD', holds_key(row.session), id, id)
  gather('HSET', job_part_key(row.job, 'running'), id, row.session)
  if SERIAL[row.origin] then
    gather('SADD', job_part_key(row.job, 'busy'), id)
  end
  enter_items(id, row, 'running')
end

local function leave_running(id, row)
  gather('ZREM', RUNNING, id)
  gather('HDEL', job_part_key(row.job, 'running'), id)
  if SERIAL[row.origin] then
    gather('SREM', job_part_key(row.job, 'busy'), id)
  end
  leave_items(id, row, 'running')
  local holds = holds_key(row.session)
  gather('ZREM', holds, id)
  after_send(holds, function()
    if call('EXISTS', holds) == 0 then
      call('ZREM', SPACE .. 'holding', row.session)
    end
  end)
end

local scheduled_jobs, prune_times = {}, {}

-- Schedule the pruning of a job for when its present rows have been kept long enough.
local function schedule_pruning_after(keep, job)
  if not scheduled_jobs[job] then
    scheduled_jobs[job] = true
    prune_times[#prune_times + 1] = now_plus(keep)
    prune_times[#prune_times + 1] = job
  end
  after_send('prunable', function()
    for start = 1, #prune_times, MOST_WORDS do
      call('ZADD', SPACE .. 'prunable', 'LT', unpack(prune_times, start, math.min(start + MOST_WORDS - 1, #prune_times)))
    end
    scheduled_jobs, prune_times = {}, {}
  end)
end

-- Create an occurrence. `row` has key, origin, due, priority, payload and keep (of its job), and may have nominal, expires,
-- retry_of, fingerprint, parent, parked, level. It is pending; or running, if the row has attempt, token, session, node and
-- started. If the row has an id, the occurrence is created only if its key is free; else this returns nil.
local function create(job, row)
  local id = row.id or next_number('occurrence', NUMBER)
  row.job = job
  row.level = row.level or level_of(row.priority, row.parent and 2 or CLASS[row.origin] or 0)
  local values = {
    'job', job, 'key', row.key, 'origin', row.origin, 'state', row.session and 'running' or 'pending', 'due', row.due,
    'priority', row.priority, 'level', row.level, 'payload', row.payload, 'created', NOW,
  }
  for _, name in ipairs({
    'nominal', 'expires', 'retry_of', 'fingerprint', 'parent', 'attempt', 'token', 'session', 'node', 'started', 'parked',
  }) do
    if row[name] then
      values[#values + 1] = name
      values[#values + 1] = row[name]
    end
  end
  call('HSET', occurrence_key(id), unpack(values))
  local write = row.id and redis.pcall or call
  local key_reply = write(row.id and 'HSETNX' or 'HSET', job_part_key(job, 'keys'), row.key, id)
  if row.id and key_reply ~= 1 then
    call('DEL', occurrence_key(id))
    if key_reply ~= 0 then
      error(key_reply.err, 0)
    end
    return nil
  end
  gather('ZADD', IDS, id, id)
  gather('ZADD', job_part_key(job, 'ids'), id, id)
  if row.nominal then
    gather('ZADD', job_part_key(job, 'nominal'), row.nominal, id)
  end
  if SERIAL[row.origin] then
    gather('ZADD', job_part_key(job, 'serial'), 0, id)
  end
  if row.session then
    enter_running(id, row)
  else
    enter_pending(id, row)
  end
  schedule_pruning_after(row.keep, job)
  return id
end

-- Record an attempt that did not end its occurrence; the last attempt is in the row.
local function record_run(id, row, finish, reason, problem)
  local null = cjson.null
  call('RPUSH', SPACE .. 'attempts:' .. id, cjson.encode({
    row.attempt, row.token, row.session, row.node, row.started, NOW, finish, reason or null, problem or null,
  }))
end

-- Return when an unfinished occurrence is due again: when it was due before. If it was claimed ahead of its time, that is
-- later than now; but at most by a second, even if the clock was set back.
local function due_again(row)
  local latest_due = now + 1000000
  return tonumber(row.due) < latest_due and row.due or integer_text(latest_due)
end

-- Make a running occurrence pending again. `changes` are further fields and values, alternately.
local function requeue(id, row, due, changes)
  leave_running(id, row)
  row.state, row.due = 'pending', due
  call('HDEL', occurrence_key(id), 'session', 'node', 'progress', 'started', 'reserved')
  call('HSET', occurrence_key(id), 'state', 'pending', 'due', due, unpack(changes))
  enter_pending(id, row)
end

-- Give an occurrence its final state. `changes` are further fields and values, alternately.
local function close(id, row, state, changes)
  if row.state == 'running' then
    leave_running(id, row)
  else
    leave_pending(id, row)
  end
  if row.reserved then
    call('HDEL', occurrence_key(id), 'reserved')
  end
  row.state = state
  call('HSET', occurrence_key(id), 'state', state, 'finished', NOW, unpack(changes))
  if INDEXED[state] then
    gather('ZADD', SPACE .. 'state:' .. state, id, id)
  end
  enter_items(id, row, state)
  if UNWELL[state] then
    gather('ZADD', SPACE .. 'unwell', NOW, id)
  end
  if SERIAL[row.origin] then
    gather('ZREM', job_part_key(row.job, 'serial'), id)
  end
  return true
end

-- Wake a parked occurrence: make it due at a time. A batch moves to the first class of its priority. `changes` are further fields and
-- values, alternately.
local function wake(id, row, due, changes)
  row.due = due
  if row.parked then
    gather('ZREM', PARKED, id)
    call('HDEL', occurrence_key(id), 'parked')
    row.parked = false
  end
  local level = row.listed and level_of(row.priority, 0) or row.level
  if level ~= row.level then
    change_line('ZREM', row.level, line_of(row), id)
    row.level = level
  end
  enter_pending(id, row)
  call('HSET', occurrence_key(id), 'due', row.due, 'level', row.level, unpack(changes))
end

-- Cancel a pending occurrence; ask a running one to stop (the first reason stays).
local function ask_to_cancel(id, row, reason)
  if row.state == 'pending' then
    close(id, row, 'cancelled', { 'reason', reason })
  elseif row.state == 'running' then
    call('HSETNX', occurrence_key(id), 'cancel', reason)
  end
  return row.state
end

-- Count the pending and running occurrences that are subject to the overlap policy.
local function count_active(job, overlap)
  return overlap == 'allow' and 0 or call('ZCARD', job_part_key(job, 'serial'))
end

-- Close occurrences that never started and are past their expiry, with the verdict missed(late); at most a thousand.
local function close_late()
  for _, id in ipairs(call('ZRANGEBYSCORE', EXPIRING, '-inf', '(' .. NOW, 'LIMIT', 0, 1000)) do
    local row = occurrence(id)
    if row.state ~= 'pending' or not try(close, id, row, 'missed', { 'reason', 'late' }) then
      gather('ZREM', EXPIRING, id)
    end
  end
  send()
end

local function is_late(row)
  return row.expires and tonumber(row.attempt or 0) == 0 and tonumber(row.expires) < now
end
