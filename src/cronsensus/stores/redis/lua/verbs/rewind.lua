-- Take a job's schedule back, if the job is as the caller saw it. Verdict ranges above the new watermark are deleted; one
-- that reaches across it ends there. So the others still sort by id as by time. Occurrences and their keys stay.
-- needs: occurrences jobs pruning forgetting
local name, revision, seen, watermark, next_due, eras, held, began, cut, by, why, details = unpack(args, 1, 12)
local job, refusal = living(name)
if not job then
  return refuse(refusal)
end
local key = job_key(job)
local row = read(key, 'revision', 'watermark', 'paused_at', 'pause_end', 'keep')
if row.paused_at or row.revision ~= revision or row.watermark ~= seen then
  return answer(false)
end
local to, again = tonumber(watermark), {}
for _, one in ipairs(cut) do
  again[one[1]] = one
end
for _, id in ipairs(call('ZRANGEBYSCORE', of_job(job, 'lasts'), '(' .. watermark, '+inf')) do
  call('ZREMRANGEBYSCORE', of_job(job, 'ranges'), id, id)
  local one = again[id]
  if one then
    call('ZADD', of_job(job, 'ranges'), id, id .. ' ' .. one[3] .. ' ' .. one[4])
    call('ZADD', of_job(job, 'lasts'), one[2], id)
  else
    call('ZREM', of_job(job, 'lasts'), id)
    call('ZREM', SPACE .. 'decided', id .. ' ' .. job)
  end
end
for _, id in ipairs(call('ZRANGEBYSCORE', of_job(job, 'nominal'), '(' .. watermark, '+inf')) do
  local one = occurrence(id)
  local more = read(occurrence_key(id), 'attempt', 'nominal')
  if one.state == 'pending' and one.origin == 'schedule' and tonumber(more.attempt or 0) == 0 then
    leave_pending(id, one)
    gather('ZREM', of_job(job, 'serial'), id)
    send()
    delete_final(job, id, { key = one.key, state = 'pending', nominal = more.nominal })
  end
end
local pauses = call('LRANGE', of_job(job, 'pauses'), 0, -1)
call('DEL', of_job(job, 'pauses'))
for _, pause in ipairs(pauses) do
  local start, stop = string.match(pause, '^(%-?%d+) (%-?%d+)$')
  if tonumber(start) <= to then
    call('RPUSH', of_job(job, 'pauses'), start .. ' ' .. whole(math.min(tonumber(stop), to)))
  end
end
if row.pause_end and tonumber(row.pause_end) > to then
  call('HSET', key, 'pause_end', watermark)
end
call('DEL', of_job(job, 'eras'))
call('RPUSH', of_job(job, 'eras'), unpack(eras))
call('HSET', key, 'eras', held, 'last_since', began)
set_due(job, next_due, true, watermark)
look_for_pruning(job, row.keep)
record(by, 'rewind', name, why, details)
return answer(true)
