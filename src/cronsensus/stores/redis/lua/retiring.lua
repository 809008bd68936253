-- The end of a job: what waits is cancelled, what nobody decided is one verdict, its era has no trigger.
-- needs: occurrences jobs pruning

-- `one` is {job, revision seen, watermark seen, name, new fields, era, last undecided time, text of their range}.
local function retire(at, one)
  local job, _, _, name, fields, era, last, text = unpack(one, 1, 8)
  for _, priority in ipairs(call('ZRANGE', LEVELS, 0, -1)) do
    for _, kind in ipairs({ ':s', ':w' }) do
      for _, id in ipairs(call('ZRANGE', line_key(priority, job .. kind), 0, -1)) do
        close(id, occurrence(id), 'cancelled', { 'reason', 'retired' })
      end
    end
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
  call('SREM', SPACE .. 'paused', job)
  set_due(job, false, false)
end
