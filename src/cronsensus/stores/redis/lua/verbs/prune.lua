-- Delete old occurrences and ranges of some jobs, then old sessions, locks, releases and entries of the trail. The script
-- begins with deletes: a server without free memory refuses every other write, and this is how it gets space again.
-- A final state has no exit and a horizon only rises, so two nodes that prune at the same instant do no harm.
-- needs: retiring releases pruning deleting locks queues history
local HOUR, DAY, PAGE = 3600000000, 86400000000, 100
local MOST_SESSIONS = 1000
local MOST = 2000 -- so many are read in a call; the answer has the position to go on from

local jobs, before, limit, skipped = unpack(args, 1, 4)
local deleted, needed, rows_read = 0, 0, 0

-- Whether an item is kept because its batch is not old enough to be pruned: the batch counts its items, and its retry reads
-- them.
local batch_is_kept = {}
local function must_keep_for_batch(batch, bound)
  if batch_is_kept[batch] == nil then
    local row = read(occurrence_key(batch), 'state', 'finished')
    local finished = tonumber(row.finished)
    batch_is_kept[batch] = row.state == 'pending' or row.state == 'running' or (finished ~= nil and finished >= bound)
  end
  return batch_is_kept[batch]
end

-- Return when the earliest parked dependent was created: its upstreams are needed. nil: there is none.
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
local dependent_since = earliest_dependent()

-- Whether the retry of an occurrence has not ended, or was retried itself.
local function is_being_retried(retry)
  if not retry then
    return false
  end
  local row = read(occurrence_key(retry), 'state', 'retried_as')
  return row.state == 'pending' or row.state == 'running' or (row.state and row.retried_as)
end

-- Whether the retry of an item's batch has not ended, or was retried itself.
local batch_in_retry = {}
local function is_batch_being_retried(batch)
  if batch_in_retry[batch] == nil then
    batch_in_retry[batch] = is_being_retried(read(occurrence_key(batch), 'retried_as').retried_as)
  end
  return batch_in_retry[batch]
end

-- Count the items of a batch that is being deleted: once it is gone, its retry is unknown, and with it who needs the items.
local function count_items(batch)
  local count = 0
  for _, state in ipairs({ 'succeeded', 'failed', 'cancelled', 'skipped', 'missed' }) do
    count = count + call('ZCARD', items_key(batch, state))
  end
  return count
end

-- Prune a job, without its first `skipped_count` occurrences. Returns how many to skip next time; nothing: it is done.
local function prune(job, skipped_count)
  local job_row = read(job_key(job), 'keep', 'watermark', 'horizon')
  if not tonumber(job_row.keep) or not tonumber(job_row.watermark) or (job_row.horizon and not tonumber(job_row.horizon)) then
    return
  end
  local bound, needed_from = tonumber(before) or now - job_row.keep, dependent_since and dependent_since - job_row.keep
  local watermark, horizon = tonumber(job_row.watermark), job_row.horizon
  local function raise_horizon(time)
    if not horizon or tonumber(time) > tonumber(horizon) then
      horizon = time
    end
  end
  -- From the oldest on, up to the first that was created too late to have ended early enough. Times above the watermark
  -- stay: the key keeps a later plan from creating the occurrence again.
  local created_at, page = 0, nil
  repeat
    page = call('ZRANGE', job_part_key(job, 'ids'), skipped_count, skipped_count + math.min(PAGE, limit - deleted) - 1)
    for _, id in ipairs(page) do
      local row = read(SPACE .. 'occurrence:' .. id, 'key', 'nominal', 'state', 'created', 'finished', 'parent', 'retried_as')
      created_at, rows_read = tonumber(row.created), rows_read + 1
      local finished, nominal = tonumber(row.finished), tonumber(row.nominal)
      created_at = created_at or 0
      local is_needed = needed_from and row.nominal and finished and finished >= needed_from
        or row.parent and is_batch_being_retried(row.parent) or not row.parent and is_being_retried(row.retried_as)
      if not finished or finished >= bound or (row.nominal and not (nominal and nominal <= watermark)) or not row.key
        or (row.parent and must_keep_for_batch(row.parent, bound)) or (is_needed and not tonumber(before)) then
        skipped_count = skipped_count + 1
      else
        delete_final(job, id, row)
        deleted, needed = deleted + 1, needed + (is_needed and 1 or 0)
        if is_needed and not row.parent then
          needed = needed + count_items(id)
          batch_in_retry[id] = false
        end
        if row.nominal then
          raise_horizon(row.nominal)
        end
      end
    end
  until #page == 0 or deleted >= limit or created_at >= bound or rows_read >= MOST
  local is_done = #page == 0 or created_at >= bound
  if is_done and deleted < limit then
    local range_bound = not tonumber(before) and needed_from and math.min(bound, needed_from) or bound
    local expired = call(
      'ZRANGEBYSCORE', job_part_key(job, 'lasts'), '-inf', '(' .. integer_text(range_bound), 'WITHSCORES', 'LIMIT', 0, limit - deleted
    )
    for index = 1, #expired, 2 do
      call('ZREM', job_part_key(job, 'lasts'), expired[index])
      call('ZREMRANGEBYSCORE', job_part_key(job, 'ranges'), expired[index], expired[index])
      call('ZREMRANGEBYSCORE', SPACE .. 'decided', expired[index], expired[index])
      raise_horizon(integer_text(expired[index + 1]))
      deleted = deleted + 1
      needed = needed + (needed_from and tonumber(expired[index + 1]) >= needed_from and 1 or 0)
    end
  end
  if horizon and horizon ~= job_row.horizon then
    call('HSET', job_key(job), 'horizon', horizon)
  end
  if not is_done or deleted >= limit then
    return skipped_count
  end
  if prune_retired_job(job) then
    return
  end
  try(prune_history, job, math.min(bound, now - HISTORY_KEPT))
  -- If many rows have to stay for now, they are not read again with every call.
  schedule_pruning(job, job_row.keep, true, skipped_count >= PAGE and now + HOUR)
end

-- Delete sessions that ended a day ago. Returns whether there may be more.
local function prune_sessions()
  local expired = call('ZRANGEBYSCORE', SPACE .. 'ended', '-inf', '(' .. integer_text(now - DAY), 'LIMIT', 0, MOST_SESSIONS)
  for _, session in ipairs(expired) do
    call('DEL', SPACE .. 'session:' .. session)
    call('ZREM', SPACE .. 'sessions', session)
    call('ZREM', SPACE .. 'ended', session)
  end
  return #expired == MOST_SESSIONS
end

-- Locks that ran out are deleted: tokens are counted for the whole namespace, and so still grow. The locks of a session are
-- freed when that ends.
local function prune_locks()
  for _, text in ipairs(call('ZRANGEBYSCORE', SPACE .. 'leases', '-inf', NOW, 'LIMIT', 0, 1000)) do
    local name, place = name_and_place(text)
    free_lock(name, place)
  end
  -- A waiter that joined a day ago and still waits has polled since, and joins again.
  for _, name in ipairs(call('ZRANGEBYSCORE', QUEUES, '-inf', integer_text(now - DAY), 'LIMIT', 0, 1000)) do
    call('DEL', queue_key(name))
    call('ZREM', QUEUES, name)
  end
end

allow_writes_when_full()
local pruned, position = 0, 0
for index, job in ipairs(jobs) do
  position = try(prune, job, index == 1 and skipped or 0)
  if position then
    break
  end
  pruned = index
  if rows_read >= MOST then
    break
  end
end
local more = prune_sessions()
prune_locks()
more = prune_trail() or more
prune_releases()
for _, job in ipairs(call('ZRANGEBYSCORE', PENDING_OF_RETIRED, '-inf', NOW, 'LIMIT', 0, 1)) do
  cancel_pending(job)
end
return answer({ deleted, needed, pruned, position or 0, more })
