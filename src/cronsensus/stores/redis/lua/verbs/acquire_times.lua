-- Nothing runs between the count of a job's runs and the start of another: the script is one step.
-- needs: starting jobs room eras
local session, lease, most, asks, verdicts, early = unpack(args, 1, 6)
if not alive(session) then
  return refuse('LEASELOST')
end
for _, ask in ipairs(asks) do
  for _, one in ipairs(ask[3]) do
    if tonumber(one[1]) - now > most then
      return refuse('TOOEARLY ' .. NOW)
    end
  end
end
expire()

local jobs = {}
local function job_of(name)
  local found = jobs[name]
  if found == nil then
    local number = living(name)
    found = number and read(
      job_key(number), 'horizon', 'watermark', 'manual', 'next_due', 'priority', 'payload', 'keep', 'paused_at', 'concurrency',
      'grace'
    ) or false
    if found then
      found.number, found.room = number, room_of(number, found.concurrency)
    end
    jobs[name] = found
  end
  return found
end

local chosen, closed = {}, {}

-- Why a time of which nothing is known is not won; nil: it is.
local function refusal(job, intent, has_room)
  if job.paused_at then
    return 'paused'
  elseif intent == 'late' then
    return 'late'
  elseif not has_room then
    return 'full'
  end
  return intent == 'full' and 'left' or nil
end

-- Decide a time; '': it is won.
local function decide(job, intent, has_room, nominal, key)
  local number, time = job.number, tonumber(nominal)
  if not (tonumber(job.keep) and tonumber(job.priority) and job.payload) then
    return 'lost' -- it cannot be read
  end
  if time - now > early then
    return 'early'
  end
  if (job.horizon and time <= tonumber(job.horizon)) or not kept_elsewhere(number, time) then
    return 'lost'
  end
  local id, refused = call('HGET', of_job(number, 'keys'), key), nil
  if id then
    local row = pending_row(id)
    local whole_row = row.key and row.origin and row.payload and tonumber(row.level)
    if row.state ~= 'pending' or chosen[id] or closed[id] or intent ~= 'run' or not has_room or tonumber(row.due) > now
      or not whole_row then
      return 'lost'
    end
  else
    refused = refusal(job, intent, has_room)
    if refused == 'left' then
      return refused
    end
    id = create(number, {
      key = key, origin = 'schedule', nominal = nominal, due = NOW, priority = job.priority, payload = job.payload,
      keep = job.keep, expires = job.grace and whole(math.min(time + (tonumber(job.grace) or LAST), LAST)),
    })
    -- Another program keeps time, and nothing before this is owed.
    if job.manual and time > tonumber(job.watermark) and (not job.next_due or tonumber(job.next_due) > time) then
      job.watermark = nominal
      call('HSET', job_key(number), 'watermark', nominal)
    end
  end
  if refused then
    closed[id] = refused
    closed[#closed + 1] = id
    return refused
  end
  chosen[id] = true
  chosen[#chosen + 1] = id
  job.room = job.room - 1
  return ''
end

local answers = {}
for place, ask in ipairs(asks) do
  local job = job_of(ask[1])
  local has_room, answers_of = job and job.room > 0, {}
  for index, one in ipairs(ask[3]) do
    answers_of[index] = job and (try(decide, job, ask[2], has_room, one[1], one[2]) or 'lost') or 'unknown'
  end
  answers[place] = answers_of
end
send()
for _, id in ipairs(closed) do
  local state, reason = unpack(verdicts[closed[id]], 1, 2)
  try(close, id, occurrence(id), state, { 'reason', reason })
end
local rows = {}
for index, id in ipairs(chosen) do
  rows[index] = pending_row(id)
end
local claims, specs = start(rows, session, lease)
return answer({ answers, NOW, claims, specs })
