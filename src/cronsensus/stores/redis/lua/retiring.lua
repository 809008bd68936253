-- Retire a job: its pending occurrences are cancelled, its undecided times get one verdict, its new era has no trigger.
-- needs: occurrences jobs pruning

local WAITING = SPACE .. 'waiting' -- retired jobs of which something is kept, by the time until which it is

local function cancel_waiting(job)
  for _, level in ipairs(call('ZRANGE', LEVELS, 0, -1)) do
    for _, kind in ipairs({ ':s', ':w' }) do
      for _, id in ipairs(call('ZRANGE', line_key(level, job .. kind), 0, -1)) do
        close(id, occurrence(id), 'cancelled', { 'reason', 'retired' })
      end
    end
  end
  call('HDEL', job_key(job), 'waiting_until')
  call('ZREM', WAITING, job)
end

-- `one` is {job, revision seen, watermark seen, name, new fields, era, last undecided time, text of their range, until
-- when pending occurrences are kept}. Jobs that are retired already have no fields: only their pending occurrences are
-- cancelled.
local function retire(at, one)
  local job, _, _, name, fields, era, last, text, waiting_until = unpack(one, 1, 9)
  if waiting_until then
    call('HSET', job_key(job), 'waiting_until', waiting_until)
    call('ZADD', WAITING, waiting_until, job)
  else
    cancel_waiting(job)
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
  call('RPUSH', of_job(job, 'eras'), era)
  call('ZREM', SPACE .. 'jobs', name)
  call('ZADD', SPACE .. 'retired', 0, name)
  call('ZREM', SPACE .. 'code', name)
  call('ZREM', SPACE .. 'dependent', name)
  call('SREM', SPACE .. 'paused', job)
  set_due(job, false, false)
  look_for_pruning(job, call('HGET', key, 'keep'))
end
