-- needs: sessions jobs
local limit, newest, place, of, ahead = unpack(args, 1, 5)
local DUE, PENDING = SPACE .. 'due', SPACE .. 'pending'
local PAGE, FARTHEST = 500, 20000

-- Up to `most` jobs of the share asked for, from the one end of the index or from the other.
local function find(most, command, from, to)
  local found, seen, size = {}, 0, of == 1 and most or PAGE
  while #found < most and seen < FARTHEST do
    local page = call(command, DUE, from, to, 'LIMIT', seen, size)
    for _, job in ipairs(page) do
      if #found < most and job % of == place then
        found[#found + 1] = job
      end
    end
    seen = seen + #page
    if #page < size then
      return found, false
    end
  end
  return found, #found < most
end

local jobs, farther = find(limit + 1, 'ZRANGEBYSCORE', '-inf', later(ahead))
local more = #jobs > limit or farther
if #jobs > limit then
  local last = find(newest, 'ZREVRANGEBYSCORE', NOW, '-inf')
  local there = {}
  for index = #jobs, limit - #last + 1, -1 do
    jobs[index] = nil
  end
  for _, job in ipairs(jobs) do
    there[job] = true
  end
  for index = #last, 1, -1 do
    if not there[last[index]] then
      jobs[#jobs + 1] = last[index]
    end
  end
end
for index, job in ipairs(jobs) do
  jobs[index] = try(state_row, job) or { job }
end

local next_job = call('ZRANGEBYSCORE', DUE, '(' .. NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local first = call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')[2]
local next_pending = call('ZRANGEBYSCORE', PENDING, '(' .. NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local holders = {}
for _, session in ipairs(call('ZRANGE', SPACE .. 'holding', 0, -1)) do
  holders[#holders + 1] = try(session_row, session) or { session }
end
return answer({
  NOW, jobs, more, next_job and at_score(next_job) or false, first and tonumber(first) <= now or false,
  next_pending and at_score(next_pending) or false, holders, turning(),
})
