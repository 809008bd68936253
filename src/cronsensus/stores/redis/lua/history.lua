-- Deletes old eras, pauses, retired jobs, releases and entries of the trail.
-- needs: retiring releases pruning

local MOST_ENTRIES = 500

-- Delete a retired job if it has no other rows; return whether it was deleted.
local function prune_retired_job(job)
  local key = job_key(job)
  local row = read(key, 'name', 'retired_at', 'waiting_until')
  local retired_at = tonumber(row.retired_at)
  if not retired_at or retired_at >= now - REMEMBERED or row.waiting_until or not row.name then
    return false
  end
  if call('EXISTS', job_part_key(job, 'keys'), job_part_key(job, 'ids'), job_part_key(job, 'ranges')) > 0 then
    return false
  end
  local parts = { 'eras', 'pauses', 'ranges', 'lasts', 'keys', 'ids', 'nominal', 'serial', 'running', 'busy' }
  for index, part in ipairs(parts) do
    parts[index] = job_part_key(job, part)
  end
  call('DEL', key, unpack(parts))
  call('HDEL', SPACE .. 'names', row.name)
  call('ZREM', SPACE .. 'retired', row.name)
  call('ZREM', SPACE .. 'prunable', job)
  call('HINCRBY', META, 'definitions', 1)
  return true
end

-- Delete the eras and pauses of a living job that ended before a time, without undecided times.
local function prune_history(job, bound)
  local key = job_key(job)
  local row = read(key, 'watermark', 'next_due', 'retired_at', 'horizon')
  local watermark, next_due = tonumber(row.watermark), tonumber(row.next_due)
  if row.retired_at or (row.next_due and not next_due) then
    return
  end
  local function owes_nothing_until(time)
    return time <= watermark or not next_due or time < next_due
  end
  local eras = call('LRANGE', job_part_key(job, 'eras'), 0, -1)
  local first, since = 1, nil
  for index = 2, #eras do
    local begins = era_since(eras[index])
    if begins < bound and owes_nothing_until(begins) then
      first, since = index, begins
    end
  end
  if since then
    -- Planning begins with the first era at the watermark: nothing lies between.
    local horizon = tonumber(row.horizon)
    call('HSET', key, 'watermark', integer_text(math.max(watermark, since)),
      'horizon', integer_text(horizon and math.max(horizon, since) or since), 'eras', '[' .. table.concat(eras, ',', first) .. ']')
    call('LTRIM', job_part_key(job, 'eras'), first - 1, -1)
  end
  local pauses, ended_count = call('LRANGE', job_part_key(job, 'pauses'), 0, -1), 0
  for index, pause in ipairs(pauses) do
    local pause_end = tonumber(string.match(pause, ' (%-?%d+)$'))
    if pause_end and pause_end < bound and owes_nothing_until(pause_end) then
      ended_count = index
    else
      break
    end
  end
  call('LTRIM', job_part_key(job, 'pauses'), ended_count, -1)
end

-- The trail is kept for a year. Returns whether there may be more that is older.
local function prune_trail()
  local TRAIL = SPACE .. 'trail'
  local entries = call('ZRANGE', TRAIL, 0, MOST_ENTRIES - 1)
  for _, text in ipairs(entries) do
    local entry = try(cjson.decode, text)
    if not entry or not tonumber(entry[2]) or tonumber(entry[2]) >= now - REMEMBERED then
      return false
    end
    call('ZREM', TRAIL, text)
    call('ZREM', TRAIL .. ':' .. entry[5], entry[1])
  end
  return #entries == MOST_ENTRIES
end

-- A release that was replaced a year ago is deleted, unless it has a live session.
local function prune_releases()
  local all, replaced = call('HGETALL', RELEASES), nil
  for index = 2, #all, 2 do
    local place = tonumber(all[index]) or 0
    if place < now - REMEMBERED and place > (replaced or 0) then
      replaced = place
    end
  end
  local old_releases, has_old = {}, false
  for index = 1, #all, 2 do
    if replaced and (tonumber(all[index + 1]) or 0) < replaced then
      old_releases[all[index]], has_old = true, true
    end
  end
  if not has_old then
    return
  end
  for _, session in ipairs(call('ZRANGE', OPEN, 0, -1)) do
    old_releases[call('HGET', session_key(session), 'release') or ''] = nil
  end
  for release in pairs(old_releases) do
    call('HDEL', RELEASES, release)
  end
end
