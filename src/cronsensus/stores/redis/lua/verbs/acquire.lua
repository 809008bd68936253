-- Claim the occurrences that a caller names, and give verdicts to the nominal times that it does not want run. A request is
-- {name of the job, intent ('run', 'late' or 'full'; nil: by key only), {{nominal, key}, …}, fingerprint}. The script is one
-- step, so no other run of a job starts between the count of its runs and this one's start.
-- needs: starting jobs runs_left deleting eras
local session, lease, most_in_future, requests, verdicts, most_early = unpack(args, 1, 6)
if not is_session_alive(session) then
  return refuse('LEASELOST')
end
local intents = {} -- by name of a job: what is wanted of its nominal times; nil: it was requested by key only
for _, request in ipairs(requests) do
  intents[request[1]] = intents[request[1]] or request[2]
  for _, item in ipairs(request[3]) do
    if item[1] and tonumber(item[1]) - now > most_in_future then
      return refuse('TOOEARLY ' .. NOW)
    end
  end
end
close_late()

local jobs = {}
local function read_job(name)
  local row = jobs[name]
  if row == nil then
    local number = find_live_job(name)
    row = number and read(
      job_key(number), 'horizon', 'watermark', 'manual', 'next_due', 'priority', 'payload', 'keep', 'paused_at', 'concurrency',
      'grace'
    ) or false
    if row then
      row.number, row.runs_left = number, intents[name] and runs_left_of(number, row.concurrency) or math.huge
    end
    jobs[name] = row
  end
  return row
end

local selected, not_won, fingerprints = {}, {}, {}

-- Return why a nominal time without an occurrence is not won; nil: it is won.
local function reason_not_won(job, intent, below_limit)
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

local function is_readable(row)
  return row.key and row.origin and row.payload and tonumber(row.level)
end

-- Create an occurrence. If it has a nominal time and another program names the times, the watermark moves to that time.
local function create_for(job, key, nominal, values)
  values.key, values.nominal, values.due = key, nominal, NOW
  values.priority, values.payload, values.keep = job.priority, job.payload, job.keep
  local id, time = create(job.number, values), tonumber(nominal or 0)
  -- Only if no earlier time is undecided.
  if nominal and job.manual and time > tonumber(job.watermark) and (not job.next_due or tonumber(job.next_due) > time) then
    job.watermark = nominal
    call('HSET', job_key(job.number), 'watermark', nominal)
  end
  return id
end

local function select_for_start(job, id)
  selected[id] = true
  selected[#selected + 1] = id
  job.runs_left = job.runs_left - 1
  return ''
end

-- Decide a nominal time: its occurrence is claimed (''), closed with a verdict, or not won. Returns '' or why not.
local function decide_time(job, intent, below_limit, nominal, key)
  local number, time = job.number, tonumber(nominal)
  if time - now > most_early then
    return 'early'
  end
  if is_pruned(job, time) or not is_named_elsewhere(number, time) then
    return 'lost'
  end
  local id, refused = call('HGET', job_part_key(number, 'keys'), key), nil
  if id then
    local row = pending_row(id)
    if row.state ~= 'pending' or selected[id] or not_won[id] or intent ~= 'run' or not below_limit or tonumber(row.due) > now
      or not is_readable(row) then
      return 'lost'
    end
  else
    refused = reason_not_won(job, intent, below_limit)
    if refused == 'left' then
      return refused
    end
    id = create_for(job, key, nominal, {
      origin = 'schedule', expires = job.grace and integer_text(math.min(time + (tonumber(job.grace) or LATEST_TIME), LATEST_TIME)),
    })
  end
  if refused then
    not_won[id] = refused
    not_won[#not_won + 1] = id
    return refused
  end
  return select_for_start(job, id)
end

-- Claim the occurrence under a key, even if others have waited longer; create it if it is missing. Returns '' or why not.
local function decide_named(job, nominal, key, fingerprint)
  local number = job.number
  if nominal and is_pruned(job, tonumber(nominal)) then
    return 'pruned'
  end
  if nominal and not is_named_elsewhere(number, tonumber(nominal)) then
    return 'lost'
  end
  local id = call('HGET', job_part_key(number, 'keys'), key)
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
    id = create_for(job, key, nominal, { origin = nominal and 'schedule' or 'enqueue', fingerprint = fingerprint })
    fingerprints[id] = fingerprint
    return select_for_start(job, id)
  end
  local row = pending_row(id)
  if row.state ~= 'pending' or selected[id] or not_won[id] or not is_readable(row) then
    return 'lost'
  end
  local known_fingerprint = read(occurrence_key(id), 'fingerprint').fingerprint
  if known_fingerprint and tonumber(row.attempt or 0) > 0 then
    fingerprint = known_fingerprint
  elseif fingerprint then
    call('HSET', occurrence_key(id), 'fingerprint', fingerprint)
  elseif known_fingerprint then
    call('HDEL', occurrence_key(id), 'fingerprint')
  end
  fingerprints[id] = fingerprint
  return select_for_start(job, id)
end

local function decide(job, intent, below_limit, item, fingerprint)
  if not (tonumber(job.keep) and tonumber(job.priority) and job.payload) then
    return 'lost' -- it cannot be read
  elseif intent then
    return decide_time(job, intent, below_limit, item[1], item[2])
  end
  return decide_named(job, item[1], item[2], fingerprint)
end

local answers = {}
for place, request in ipairs(requests) do
  local job = read_job(request[1])
  local below_limit, job_answers = job and job.runs_left > 0, {}
  for index, item in ipairs(request[3]) do
    job_answers[index] = job and (try(decide, job, request[2], below_limit, item, request[4]) or 'lost') or 'unknown'
  end
  answers[place] = job_answers
end
send()
for _, id in ipairs(not_won) do
  local state, reason = unpack(verdicts[not_won[id]], 1, 2)
  try(close, id, occurrence(id), state, { 'reason', reason })
end
local rows = {}
for index, id in ipairs(selected) do
  rows[index] = pending_row(id)
end
local claims, specs = start_runs(rows, session, lease)
for place, id in ipairs(selected) do
  claims[place][16] = fingerprints[id]
end
return answer({ answers, NOW, claims, specs })
