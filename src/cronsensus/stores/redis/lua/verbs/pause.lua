-- Pause a job: none of its times is fired until it is resumed.
-- needs: jobs
local name, by, why = unpack(args, 1, 3)
local job, refusal = find_live_job(name)
if not job then
  return refuse(refusal)
end
if call('HEXISTS', job_key(job), 'paused_at') == 1 then
  return answer(false)
end
call('HSET', job_key(job), 'paused_at', NOW, 'paused_by', by, 'paused_why', why)
call('SADD', SPACE .. 'paused', job)
call('ZREM', SPACE .. 'due', job)
record(by, 'pause', name, why, '{}')
return answer(true)
