-- Create occurrences that are due now, after a delay or at a time. Of two callers that use one key in the same instant, the
-- second finds what the first created.
-- needs: occurrences jobs
local LARGEST, SENDER = args[2], args[3]

local jobs = {}
local function job_of(name)
  local row = jobs[name]
  if not row then
    local job, refusal = find_job_run_here(name)
    if not job then
      return nil, refusal
    end
    row = read(job_key(job), 'priority', 'payload', 'args', 'kwargs', 'keep')
    row.number = job
    jobs[name] = row
  end
  return row
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
  due = due or now_plus(delay)
  items[index] = {
    job = job.number, key = key, is_key_generated = not own_key, origin = origin, due = due,
    priority = priority or job.priority, payload = payload, keep = job.keep, parent = parent,
    expires = expires_in and integer_text(math.min(tonumber(due) + expires_in, LATEST_TIME)),
  }
end

local answers = {}
for index, item in ipairs(items) do
  local id = not item.is_key_generated and call('HGET', job_part_key(item.job, 'keys'), item.key)
  if id then
    answers[index] = { id, false, unpack(call('HMGET', occurrence_key(id), 'state', 'payload')) }
  else
    answers[index] = { create(item.job, item), true, 'pending' }
  end
end
redis.pcall('PUBLISH', SPACE .. 'wake', SENDER) -- a notification: nothing is lost where it may not be sent
return answer(answers)
