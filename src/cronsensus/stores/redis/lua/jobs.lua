-- The row of a job: its due time, its verdict ranges, whether it is retired.

-- Return a job's number; or nothing, and the refusal, if the job does not exist or is retired.
local function find_live_job(name)
  local job = call('HGET', SPACE .. 'names', name)
  if not job then
    return nil, 'UNKNOWNJOB ' .. name
  end
  if call('HEXISTS', job_key(job), 'retired_at') == 1 then
    return nil, 'RETIRED ' .. name
  end
  return job
end

-- As `living`, but refuse also a job that only runs in other programs.
local function find_job_run_here(name)
  local job, refusal = find_live_job(name)
  if job and call('HEXISTS', job_key(job), 'elsewhere') == 1 then
    return nil, 'ELSEWHERE ' .. name
  end
  return job, refusal
end

-- Set the next due time (none: false) and index it if the job fires, at once or by `gather`; and the watermark, if one is
-- given.
local function set_due(job, next_due, fires, watermark, write)
  local changes = watermark and { 'watermark', watermark } or {}
  if next_due then
    changes[#changes + 1] = 'next_due'
    changes[#changes + 1] = next_due
  else
    call('HDEL', job_key(job), 'next_due')
  end
  if #changes > 0 then
    call('HSET', job_key(job), unpack(changes))
  end
  write = write or call
  if next_due and fires then
    write('ZADD', SPACE .. 'due', next_due, job)
  else
    write('ZREM', SPACE .. 'due', job)
  end
end

-- Write a verdict range. Ranges of one job follow one another, so their ids sort as their times do.
local function add_range(job, last, text, keep)
  local id = next_number('range', '%014.0f')
  call('ZADD', job_part_key(job, 'ranges'), id, id .. ' ' .. NOW .. ' ' .. text)
  call('ZADD', job_part_key(job, 'lasts'), last, id)
  call('ZADD', SPACE .. 'decided', id, id .. ' ' .. job)
  call('ZADD', SPACE .. 'prunable', 'LT', integer_text(math.min(tonumber(last) + keep, LATEST_TIME)), job)
end

-- The text that identifies a definition and its beginning. A store that lost data may give a revision's number again,
-- but not this text.
local function definition_of(row)
  return row.digest .. ':' .. row.revision .. ':' .. row.last_since
end

-- The values of a job that planning needs.
local function state_row(job)
  local row = read(
    job_key(job),
    'name', 'spec', 'revision', 'watermark', 'eras', 'overlap', 'pause_end', 'paused_at', 'retired_at', 'digest',
    'last_since', 'next_due'
  )
  local active = row.overlap == 'allow' and 0 or call('ZCARD', job_part_key(job, 'serial'))
  local pauses = {}
  if row.pause_end and tonumber(row.pause_end) > tonumber(row.watermark) then
    pauses = call('LRANGE', job_part_key(job, 'pauses'), 0, -1)
  end
  return { job, row.spec, row.revision, row.watermark, row.eras, active, pauses, definition_of(row), row.next_due }
end
