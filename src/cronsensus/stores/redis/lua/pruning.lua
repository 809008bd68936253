-- When something of a job may next be pruned.

local function look_for_pruning(job, keep, not_before)
  local id = call('ZRANGE', of_job(job, 'ids'), 0, 0)[1]
  local oldest = id and call('HGET', SPACE .. 'occurrence:' .. id, 'created')
  local last = call('ZRANGE', of_job(job, 'lasts'), 0, 0, 'WITHSCORES')[2]
  if not oldest and not last then
    call('ZREM', SPACE .. 'prunable', job)
    return
  end
  local one, other = tonumber(oldest) or now, tonumber(last) or now
  local first = math.min(one, other) + (tonumber(keep) or 0)
  call('ZADD', SPACE .. 'prunable', whole(math.min(math.max(first, not_before or first), LAST)), job)
end
