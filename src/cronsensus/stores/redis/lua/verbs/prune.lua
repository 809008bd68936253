-- Deletes come first: a full store refuses every other write, and this is how it gets space again.
-- A final state has no exit and a horizon only rises, so two nodes that prune at the same instant do no harm.
-- needs: retiring releases pruning forgetting locks queues history
local HOUR, DAY, PAGE = 3600000000, 86400000000, 100
local MOST_SESSIONS = 1000
local MOST = 2000 -- so many are read in a call; the answer has the position to go on from

local jobs, before, limit, skipped = unpack(args, 1, 4)
local deleted, needed, looked = 0, 0, 0

-- Whether an item must stay because its batch has not ended, or not long enough ago: the batch counts its items, and its
-- retry reads them.
local batches = {}
local function is_young(batch, bound)
  if batches[batch] == nil then
    local row = read(occurrence_key(batch), 'state', 'finished')
    local finished = tonumber(row.finished)
    batches[batch] = row.state == 'pending' or row.state == 'running' or (finished ~= nil and finished >= bound)
  end
  return batches[batch]
end

-- When the earliest parked dependent was created; nil: there is none.
local function earliest_dependent()
  local earliest
  for _, id in ipairs(call('ZRANGE', PARKED, 0, -1)) do
    local row = read(occurrence_key(id), 'state', 'parked', 'listed', 'created')
    local created = tonumber(row.created)
    if row.state == 'pending' and row.parked and not row.listed and created then
      earliest = math.min(earliest or created, created)
    end
  end
  return earliest
end
local held = earliest_dependent()

-- Whether the retry of an occurrence has not ended, or was retried itself.
local function is_being_retried(retry)
  if not retry then
    return false
  end
  local row = read(occurrence_key(retry), 'state', 'retried_as')
  return row.state == 'pending' or row.state == 'running' or (row.state and row.retried_as)
end

-- The same for the batch of an item.
local retried = {}
local function is_batch_being_retried(batch)
  if retried[batch] == nil then
    retried[batch] = is_being_retried(read(occurrence_key(batch), 'retried_as').retried_as)
  end
  return retried[batch]
end

-- How many items a batch has left. They are counted when it is deleted, because its retry is unknown afterwards.
local function count_items(batch)
  local count = 0
  for _, state in ipairs({ 'succeeded', 'failed', 'cancelled', 'skipped', 'missed' }) do
    count = count + call('ZCARD', items_key(batch, state))
  end
  return count
end

-- Prune a job from its `kept`-th occurrence on. Returns how many to pass over next time, or nothing when it is done.
local function prune(job, kept)
  local row = read(job_key(job), 'keep', 'watermark', 'horizon')
  if not tonumber(row.keep) or not tonumber(row.watermark) or (row.horizon and not tonumber(row.horizon)) then
    return
  end
  local bound, needed_from = tonumber(before) or now - row.keep, held and held - row.keep
  local watermark, horizon = tonumber(row.watermark), row.horizon
  local function raise(time)
    if not horizon or tonumber(time) > tonumber(horizon) then
      horizon = time
    end
  end
  -- From the oldest on, up to the first that was created too late to have ended early enough. Times above the watermark
  -- stay: the key keeps a later plan from creating the occurrence again.
  local made, page = 0, nil
  repeat
    page = call('ZRANGE', of_job(job, 'ids'), kept, kept + math.min(PAGE, limit - deleted) - 1)
    for _, id in ipairs(page) do
      local one = read(SPACE .. 'occurrence:' .. id, 'key', 'nominal', 'state', 'created', 'finished', 'parent', 'retried_as')
      made, looked = tonumber(one.created), looked + 1
      local finished, nominal = tonumber(one.finished), tonumber(one.nominal)
      made = made or 0
      local is_needed = needed_from and one.nominal and finished and finished >= needed_from
        or one.parent and is_batch_being_retried(one.parent) or not one.parent and is_being_retried(one.retried_as)
      if not finished or finished >= bound or (one.nominal and not (nominal and nominal <= watermark)) or not one.key
        or (one.parent and is_young(one.parent, bound)) or (is_needed and not tonumber(before)) then
        kept = kept + 1
      else
        delete_final(job, id, one)
        deleted, needed = deleted + 1, needed + (is_needed and 1 or 0)
        if is_needed and not one.parent then
          needed = needed + count_items(id)
          retried[id] = false
        end
        if one.nominal then
          raise(one.nominal)
        end
      end
    end
  until #page == 0 or deleted >= limit or made >= bound or looked >= MOST
  local done = #page == 0 or made >= bound
  if done and deleted < limit then
    local until_then = not tonumber(before) and needed_from and math.min(bound, needed_from) or bound
    local gone = call(
      'ZRANGEBYSCORE', of_job(job, 'lasts'), '-inf', '(' .. whole(until_then), 'WITHSCORES', 'LIMIT', 0, limit - deleted
    )
    for index = 1, #gone, 2 do
      call('ZREM', of_job(job, 'lasts'), gone[index])
      call('ZREMRANGEBYSCORE', of_job(job, 'ranges'), gone[index], gone[index])
      call('ZREMRANGEBYSCORE', SPACE .. 'decided', gone[index], gone[index])
      raise(whole(gone[index + 1]))
      deleted = deleted + 1
      needed = needed + (needed_from and tonumber(gone[index + 1]) >= needed_from and 1 or 0)
    end
  end
  if horizon and horizon ~= row.horizon then
    call('HSET', job_key(job), 'horizon', horizon)
  end
  if not done or deleted >= limit then
    return kept
  end
  if forget_job(job) then
    return
  end
  try(forget_history, job, math.min(bound, now - HISTORY_KEPT))
  -- If many rows have to stay for now, they are not read again with every call.
  look_for_pruning(job, row.keep, true, kept >= PAGE and now + HOUR)
end

-- Returns whether there may be more of them.
local function forget_sessions()
  local gone = call('ZRANGEBYSCORE', SPACE .. 'ended', '-inf', '(' .. whole(now - DAY), 'LIMIT', 0, MOST_SESSIONS)
  for _, session in ipairs(gone) do
    call('DEL', SPACE .. 'session:' .. session)
    call('ZREM', SPACE .. 'sessions', session)
    call('ZREM', SPACE .. 'ended', session)
  end
  return #gone == MOST_SESSIONS
end

-- Tokens are the space's own, so a lock that ran out need not be remembered. Those of a session go with it.
local function forget_locks()
  for _, text in ipairs(call('ZRANGEBYSCORE', SPACE .. 'leases', '-inf', NOW, 'LIMIT', 0, 1000)) do
    local name, place = name_and_place(text)
    free_lock(name, place)
  end
  -- A waiter that joined a day ago and still waits has polled since, and joins again.
  for _, name in ipairs(call('ZRANGEBYSCORE', QUEUES, '-inf', whole(now - DAY), 'LIMIT', 0, 1000)) do
    call('DEL', queue_key(name))
    call('ZREM', QUEUES, name)
  end
end

even_if_full()
local pruned, position = 0, 0
for index, job in ipairs(jobs) do
  position = try(prune, job, index == 1 and skipped or 0)
  if position then
    break
  end
  pruned = index
  if looked >= MOST then
    break
  end
end
local more = forget_sessions()
forget_locks()
more = forget_trail() or more
forget_releases()
for _, job in ipairs(call('ZRANGEBYSCORE', WAITING, '-inf', NOW, 'LIMIT', 0, 1)) do
  cancel_waiting(job)
end
return answer({ deleted, needed, pruned, position or 0, more })
