-- Two callers that use one key in the same instant run one after the other; the second finds what the first created.
-- needs: occurrences jobs
local LARGEST, SENDER = args[2], args[3]

local jobs = {}
local function job_of(name)
  local found = jobs[name]
  if not found then
    local job, refusal = living_here(name)
    if not job then
      return nil, refusal
    end
    found = read(job_key(job), 'priority', 'payload', 'args', 'kwargs', 'keep')
    found.number = job
    jobs[name] = found
  end
  return found
end

local items = {}
for index, item in ipairs(args[1]) do
  local name, key, own_key, positional, named, due, delay, priority, origin, expires_in, parent, headers =
    unpack(item, 1, 12)
  local job, refusal = job_of(name)
  if not job then
    return refuse(refusal)
  end
  local payload = job.payload
  if positional or named then
    positional, named = positional or job.args, named or job.kwargs
    payload = (positional ~= '[]' or named ~= '{}') and '[' .. positional .. ',' .. named .. ']' or ''
    if #payload > LARGEST then
      return refuse('TOOLARGE ' .. #payload .. ' ' .. name)
    end
  end
  if headers then
    payload = (payload == '' and '[[],{}' or string.sub(payload, 1, -2)) .. ',' .. headers .. ']'
  end
  due = due or later(delay)
  items[index] = {
    job = job.number, key = key, made_up = not own_key, origin = origin, due = due,
    priority = priority or job.priority, payload = payload, keep = job.keep, parent = parent,
    expires = expires_in and whole(math.min(tonumber(due) + expires_in, LAST)),
  }
end

local answers = {}
for index, item in ipairs(items) do
  local id = not item.made_up and call('HGET', of_job(item.job, 'keys'), item.key)
  if id then
    answers[index] = { id, false, unpack(call('HMGET', occurrence_key(id), 'state', 'payload')) }
  else
    answers[index] = { create(item.job, item), true, 'pending' }
  end
end
redis.pcall('PUBLISH', SPACE .. 'wake', SENDER) -- a notification: nothing is lost where it may not be sent
return answer(answers)
