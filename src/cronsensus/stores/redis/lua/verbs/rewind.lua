-- Rewind a job: move its watermark back, unless the job has changed since the caller read it. Verdict ranges above the new
-- watermark are deleted; a range that contains it is in `cut`, shortened: {id, new last time, when decided, text}. Scheduled
-- occurrences above it that never started are deleted; all others stay, with their keys.
-- needs: occurrences jobs pruning deleting
local name, revision, seen_watermark, watermark, next_due, eras, eras_text, last_since, cut, by, why, details = unpack(args, 1, 12)
local job, refusal = find_live_job(name)
if not job then
  return refuse(refusal)
end
local key = job_key(job)
local row = read(key, 'revision', 'watermark', 'paused_at', 'pause_end', 'keep')
if row.paused_at or row.revision ~= revision or row.watermark ~= seen_watermark then
  return answer(false)
end
local new_watermark, shortened = tonumber(watermark), {}
for _, range in ipairs(cut) do
  shortened[range[1]] = range
end
for _, id in ipairs(call('ZRANGEBYSCORE', job_part_key(job, 'lasts'), '(' .. watermark, '+inf')) do
  call('ZREMRANGEBYSCORE', job_part_key(job, 'ranges'), id, id)
  local range = shortened[id]
  if range then
    call('ZADD', job_part_key(job, 'ranges'), id, id .. ' ' .. range[3] .. ' ' .. range[4])
    call('ZADD', job_part_key(job, 'lasts'), range[2], id)
  else
    call('ZREM', job_part_key(job, 'lasts'), id)
    call('ZREM', SPACE .. 'decided', id .. ' ' .. job)
  end
end
for _, id in ipairs(call('ZRANGEBYSCORE', job_part_key(job, 'nominal'), '(' .. watermark, '+inf')) do
  local scheduled = occurrence(id)
  local times = read(occurrence_key(id), 'attempt', 'nominal')
  if scheduled.state == 'pending' and scheduled.origin == 'schedule' and tonumber(times.attempt or 0) == 0 then
    leave_pending(id, scheduled)
    gather('ZREM', job_part_key(job, 'serial'), id)
    send()
    delete_final(job, id, { key = scheduled.key, state = 'pending', nominal = times.nominal })
  end
end
local pauses = call('LRANGE', job_part_key(job, 'pauses'), 0, -1)
call('DEL', job_part_key(job, 'pauses'))
for _, pause in ipairs(pauses) do
  local paused_from, paused_until = string.match(pause, '^(%-?%d+) (%-?%d+)$')
  if tonumber(paused_from) <= new_watermark then
    call('RPUSH', job_part_key(job, 'pauses'), paused_from .. ' ' .. integer_text(math.min(tonumber(paused_until), new_watermark)))
  end
end
if row.pause_end and tonumber(row.pause_end) > new_watermark then
  call('HSET', key, 'pause_end', watermark)
end
call('DEL', job_part_key(job, 'eras'))
call('RPUSH', job_part_key(job, 'eras'), unpack(eras))
call('HSET', key, 'eras', eras_text, 'last_since', last_since)
set_due(job, next_due, true, watermark)
schedule_pruning(job, row.keep)
record(by, 'rewind', name, why, details)
return answer(true)
