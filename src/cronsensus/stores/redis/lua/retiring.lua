-- Retire a job: its pending occurrences are cancelled, its undecided times get a verdict, and a new era without a trigger
-- begins.
-- needs: occurrences jobs pruning

local PENDING_OF_RETIRED = SPACE .. 'waiting' -- retired job → until when its pending occurrences are kept

local function cancel_pending(job)
  for _, level in ipairs(call('ZRANGE', LEVELS, 0, -1)) do
    for _, kind in ipairs({ ':s', ':w' }) do
      for _, id in ipairs(call('ZRANGE', line_key(level, job .. kind), 0, -1)) do
        close(id, occurrence(id), 'cancelled', { 'reason', 'retired' })
      end
    end
  end
  call('HDEL', job_key(job), 'waiting_until')
  call('ZREM', PENDING_OF_RETIRED, job)
end

-- `entry` is {job, revision seen, watermark seen, name, new fields, era, last undecided time, text of their range, until
-- when pending occurrences are kept}. Jobs that are retired already have no fields: only their pending occurrences are
-- cancelled.
local function retire(at, entry)
  local job, _, _, name, fields, era, last, text, waiting_until = unpack(entry, 1, 9)
  if waiting_until then
    call('HSET', job_key(job), 'waiting_until', waiting_until)
    call('ZADD', PENDING_OF_RETIRED, waiting_until, job)
  else
    cancel_pending(job)
  end
  if not fields then
    return
  end
  local key = job_key(job)
  if last then
    add_range(job, last, text, call('HGET', key, 'keep'))
    call('HSET', key, 'watermark', last)
  end
  call('HSET', key, 'retired_at', at, unpack(fields))
  call('RPUSH', job_part_key(job, 'eras'), era)
  call('ZREM', SPACE .. 'jobs', name)
  call('ZADD', SPACE .. 'retired', 0, name)
  call('ZREM', SPACE .. 'code', name)
  call('ZREM', SPACE .. 'dependent', name)
  call('SREM', SPACE .. 'paused', job)
  set_due(job, false, false)
  schedule_pruning(job, call('HGET', key, 'keep'))
end
