-- End the pause of a job, and record the pause.
-- needs: jobs pruning
local name, by, why = unpack(args, 1, 3)
local job, refusal = find_live_job(name)
if not job then
  return refuse(refusal)
end
local key = job_key(job)
local row = read(key, 'paused_at', 'pause_end', 'next_due', 'keep')
if not row.paused_at then
  return answer(false)
end
local stop = integer_text(math.max(now, tonumber(row.paused_at)))
call('RPUSH', job_part_key(job, 'pauses'), row.paused_at .. ' ' .. stop)
call('HSET', key, 'pause_end', integer_text(math.max(tonumber(row.pause_end or stop), tonumber(stop))))
call('HDEL', key, 'paused_at', 'paused_by', 'paused_why')
call('SREM', SPACE .. 'paused', job)
set_due(job, row.next_due, true)
schedule_pruning(job, row.keep)
record(by, 'resume', name, why, '{}')
return answer(true)
