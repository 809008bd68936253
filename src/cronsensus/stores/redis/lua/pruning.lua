-- When something of a job may next be pruned.

local HISTORY_KEPT, REMEMBERED = 86400000000, 366 * 86400000000 -- see base.py of the stores

local function era_since(text)
  return tonumber(cjson.decode(text)[1])
end

-- When the oldest era or pause that is over, or the job itself, may go; nil: there is none.
local function oldest_history(job, keep, pruned)
  local row = read(job_key(job), 'retired_at')
  if row.retired_at then
    return tonumber(row.retired_at) + REMEMBERED
  end
  local second = call('LRANGE', job_part_key(job, 'eras'), 1, 1)[1]
  local pause = call('LRANGE', job_part_key(job, 'pauses'), 0, 0)[1]
  local first = second and try(era_since, second)
  local stop = pause and tonumber(string.match(pause, ' (%-?%d+)$'))
  local over = first and stop and math.min(first, stop) or first or stop
  if not over then
    return nil
  end
  -- Rows that a prune has left are still needed; they are not read with every call.
  local due = over + math.max(keep, HISTORY_KEPT)
  return pruned and due < now and now + 3600000000 or due
end

local function schedule_pruning(job, keep, pruned, not_before)
  keep = tonumber(keep) or 0
  local id = call('ZRANGE', job_part_key(job, 'ids'), 0, 0)[1]
  local oldest = id and call('HGET', SPACE .. 'occurrence:' .. id, 'created')
  local last = call('ZRANGE', job_part_key(job, 'lasts'), 0, 0, 'WITHSCORES')[2]
  local first = try(oldest_history, job, keep, pruned)
  if oldest or last then
    local created, first_range_end = tonumber(oldest) or now, tonumber(last) or now
    local ended = math.max(math.min(created, first_range_end) + keep, not_before or -LATEST_TIME)
    first = math.min(first or ended, ended)
  end
  if first then
    call('ZADD', SPACE .. 'prunable', integer_text(math.min(first, LATEST_TIME)), job)
  else
    call('ZREM', SPACE .. 'prunable', job)
  end
end
