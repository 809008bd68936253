-- Every era and every pause of a job's life.
local job = call('HGET', SPACE .. 'names', args[1])
if not job then
  return answer({ {}, {}, false })
end
return answer({
  call('LRANGE', job_part_key(job, 'eras'), 0, -1), call('LRANGE', job_part_key(job, 'pauses'), 0, -1),
  call('HGET', job_key(job), 'paused_at'),
})
