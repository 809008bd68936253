-- needs: sessions jobs
local limit = args[1]
local DUE, PENDING = SPACE .. 'due', SPACE .. 'pending'

local jobs = {}
for _, job in ipairs(call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, limit + 1)) do
  jobs[#jobs + 1] = job
end
local more = #jobs > limit
for index, job in ipairs(jobs) do
  jobs[index] = index <= limit and state_row(job) or nil
end

local next_job = call('ZRANGEBYSCORE', DUE, '(' .. NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local first = call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')[2]
local next_pending = call('ZRANGEBYSCORE', PENDING, '(' .. NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local holders = {}
for _, session in ipairs(call('ZRANGE', SPACE .. 'holding', 0, -1)) do
  holders[#holders + 1] = session_row(session)
end
return answer({
  NOW, jobs, more, next_job and whole(next_job) or false, first and tonumber(first) <= now or false,
  next_pending and whole(next_pending) or false, holders, call('ZRANGEBYSCORE', OPEN, '(' .. NOW, '+inf'),
  call('SMEMBERS', SPACE .. 'guests'),
})
