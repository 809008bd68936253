-- Deletes come first: a store without room refuses every other write, and this is how it gets room again.
-- What is final has no exit and a horizon only rises, so two nodes that prune in the same instant do no harm.
-- needs: retiring releases pruning forgetting locks queues history
local HOUR, DAY, PAGE = 3600000000, 86400000000, 100
local MOST_SESSIONS = 1000
local MOST = 2000 -- so many are looked at in one call; the answer says where to go on

local jobs, before, limit, skipped = unpack(args, 1, 4)
local deleted, looked = 0, 0

-- Whether an item's batch is not over: it counts its items.
local batches = {}
local function is_counted(batch)
  if batches[batch] == nil then
    local state = read(SPACE .. 'occurrence:' .. batch, 'state').state
    batches[batch] = state == 'pending' or state == 'running'
  end
  return batches[batch]
end

-- Prune a job from its `kept`-th occurrence on. Returns how many to pass over next time, or nothing when it is done.
local function prune(job, kept)
  local row = read(job_key(job), 'keep', 'watermark', 'horizon')
  if not tonumber(row.keep) or not tonumber(row.watermark) or (row.horizon and not tonumber(row.horizon)) then
    return
  end
  local bound = tonumber(before) or now - row.keep
  local watermark, horizon = tonumber(row.watermark), row.horizon
  local function raise(time)
    if not horizon or tonumber(time) > tonumber(horizon) then
      horizon = time
    end
  end
  -- From the oldest on, until they were made too late to have ended early enough. What lies above the watermark stays:
  -- its key is what keeps a later fire from creating it again.
  local made, page = 0, nil
  repeat
    page = call('ZRANGE', of_job(job, 'ids'), kept, kept + math.min(PAGE, limit - deleted) - 1)
    for _, id in ipairs(page) do
      local one = read(SPACE .. 'occurrence:' .. id, 'key', 'nominal', 'state', 'created', 'finished', 'parent')
      made, looked = tonumber(one.created), looked + 1
      local finished, nominal = tonumber(one.finished), tonumber(one.nominal)
      made = made or 0
      if not finished or finished >= bound or (one.nominal and not (nominal and nominal <= watermark)) or not one.key
        or (one.parent and is_counted(one.parent)) then
        kept = kept + 1
      else
        delete_final(job, id, one)
        deleted = deleted + 1
        if one.nominal then
          raise(one.nominal)
        end
      end
    end
  until #page == 0 or deleted >= limit or made >= bound or looked >= MOST
  local done = #page == 0 or made >= bound
  if done and deleted < limit then
    local gone = call('ZRANGEBYSCORE', of_job(job, 'lasts'), '-inf', '(' .. whole(bound), 'WITHSCORES', 'LIMIT', 0, limit - deleted)
    for index = 1, #gone, 2 do
      call('ZREM', of_job(job, 'lasts'), gone[index])
      call('ZREMRANGEBYSCORE', of_job(job, 'ranges'), gone[index], gone[index])
      call('ZREMRANGEBYSCORE', SPACE .. 'decided', gone[index], gone[index])
      raise(whole(gone[index + 1]))
      deleted = deleted + 1
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
  -- Where much has to stay for now, it is not looked at again with every call.
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
return answer({ deleted, pruned, position or 0, more })
