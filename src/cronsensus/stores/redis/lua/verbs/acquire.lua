-- Nothing runs between the count of a job's runs and the start of another: the script is one step.
-- needs: starting jobs runs_left forgetting eras
local session, lease, most, asks, verdicts, early = unpack(args, 1, 6)
if not alive(session) then
  return refuse('LEASELOST')
end
local counted = {} -- jobs whose times are requested, within their limits
for _, ask in ipairs(asks) do
  counted[ask[1]] = counted[ask[1]] or ask[2]
  for _, one in ipairs(ask[3]) do
    if one[1] and tonumber(one[1]) - now > most then
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
      found.number, found.runs_left = number, counted[name] and runs_left_of(number, found.concurrency) or math.huge
    end
    jobs[name] = found
  end
  return found
end

local chosen, closed, fingerprints = {}, {}, {}

-- Why a time without an occurrence is not won; nil: it is won.
local function refusal(job, intent, below_limit)
  if job.paused_at then
    return 'paused'
  elseif intent == 'late' then
    return 'late'
  elseif not below_limit then
    return 'full'
  end
  return intent == 'full' and 'left' or nil
end

local function is_pruned(job, time)
  return job.horizon and time <= tonumber(job.horizon)
end

local function is_whole(row)
  return row.key and row.origin and row.payload and tonumber(row.level)
end

-- Create an occurrence: at a nominal time, to which the watermark moves, or without one.
local function make(job, key, nominal, values)
  values.key, values.nominal, values.due = key, nominal, NOW
  values.priority, values.payload, values.keep = job.priority, job.payload, job.keep
  local id, time = create(job.number, values), tonumber(nominal or 0)
  -- Another program names the times, and no earlier time is undecided.
  if nominal and job.manual and time > tonumber(job.watermark) and (not job.next_due or tonumber(job.next_due) > time) then
    job.watermark = nominal
    call('HSET', job_key(job.number), 'watermark', nominal)
  end
  return id
end

local function choose(job, id)
  chosen[id] = true
  chosen[#chosen + 1] = id
  job.runs_left = job.runs_left - 1
  return ''
end

-- Decide a time; '': it is won.
local function decide_time(job, intent, below_limit, nominal, key)
  local number, time = job.number, tonumber(nominal)
  if time - now > early then
    return 'early'
  end
  if is_pruned(job, time) or not kept_elsewhere(number, time) then
    return 'lost'
  end
  local id, refused = call('HGET', of_job(number, 'keys'), key), nil
  if id then
    local row = pending_row(id)
    if row.state ~= 'pending' or chosen[id] or closed[id] or intent ~= 'run' or not below_limit or tonumber(row.due) > now
      or not is_whole(row) then
      return 'lost'
    end
  else
    refused = refusal(job, intent, below_limit)
    if refused == 'left' then
      return refused
    end
    id = make(job, key, nominal, {
      origin = 'schedule', expires = job.grace and whole(math.min(time + (tonumber(job.grace) or LAST), LAST)),
    })
  end
  if refused then
    closed[id] = refused
    closed[#closed + 1] = id
    return refused
  end
  return choose(job, id)
end

-- Decide an occurrence requested by name, even if others have waited longer; '': it is won.
local function decide_named(job, nominal, key, fingerprint)
  local number = job.number
  if nominal and is_pruned(job, tonumber(nominal)) then
    return 'pruned'
  end
  if nominal and not kept_elsewhere(number, tonumber(nominal)) then
    return 'lost'
  end
  local id = call('HGET', of_job(number, 'keys'), key)
  if id and not nominal then
    local old = read(occurrence_key(id), 'key', 'state', 'finished', 'parent')
    if old.finished and tonumber(old.finished) < now - job.keep then -- it counts as pruned
      delete_final(number, id, old)
      id = false
    end
  end
  if not id then
    if nominal and job.paused_at then
      return 'lost'
    end
    id = make(job, key, nominal, { origin = nominal and 'schedule' or 'enqueue', fingerprint = fingerprint })
    fingerprints[id] = fingerprint
    return choose(job, id)
  end
  local row = pending_row(id)
  if row.state ~= 'pending' or chosen[id] or closed[id] or not is_whole(row) then
    return 'lost'
  end
  local stands = read(occurrence_key(id), 'fingerprint').fingerprint
  if stands and tonumber(row.attempt or 0) > 0 then
    fingerprint = stands
  elseif fingerprint then
    call('HSET', occurrence_key(id), 'fingerprint', fingerprint)
  elseif stands then
    call('HDEL', occurrence_key(id), 'fingerprint')
  end
  fingerprints[id] = fingerprint
  return choose(job, id)
end

local function decide(job, intent, below_limit, one, fingerprint)
  if not (tonumber(job.keep) and tonumber(job.priority) and job.payload) then
    return 'lost' -- it cannot be read
  elseif intent then
    return decide_time(job, intent, below_limit, one[1], one[2])
  end
  return decide_named(job, one[1], one[2], fingerprint)
end

local answers = {}
for place, ask in ipairs(asks) do
  local job = job_of(ask[1])
  local below_limit, answers_of = job and job.runs_left > 0, {}
  for index, one in ipairs(ask[3]) do
    answers_of[index] = job and (try(decide, job, ask[2], below_limit, one, ask[4]) or 'lost') or 'unknown'
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
for place, id in ipairs(chosen) do
  claims[place][16] = fingerprints[id]
end
return answer({ answers, NOW, claims, specs })
