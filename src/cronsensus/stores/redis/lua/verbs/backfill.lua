-- Two operators who do it in the same instant run one after the other; the second sees what the first created.
-- `times` are {nominal, its key, a spare key}.
-- needs: occurrences jobs
local name, times, by, why = unpack(args, 1, 4)
local job, refusal = living_here(name)
if not job then
  return refuse(refusal)
end
local row = read(job_key(job), 'horizon', 'priority', 'payload', 'keep')
for _, time in ipairs(times) do
  if row.horizon and tonumber(time[1]) <= tonumber(row.horizon) then
    return refuse('TOOOLD ' .. row.horizon .. ' ' .. time[1])
  end
end

-- The newest active or succeeded occurrence of a nominal time.
local function standing_at(nominal)
  local found
  for _, id in ipairs(call('ZRANGEBYSCORE', of_job(job, 'nominal'), nominal, nominal)) do
    local one = read(occurrence_key(id), 'state', 'key', 'nominal')
    if one.nominal == nominal and (one.state == 'pending' or one.state == 'running' or one.state == 'succeeded') then
      found = { id, one.key, false, one.state }
    end
  end
  return found
end

local answers, created = {}, {}
for index, time in ipairs(times) do
  local nominal, key, spare = unpack(time, 1, 3)
  answers[index] = standing_at(nominal)
  if not answers[index] then
    if call('HEXISTS', of_job(job, 'keys'), key) == 1 then
      key = spare
    end
    local id = create(job, {
      key = key, origin = 'backfill', nominal = nominal, due = NOW, priority = row.priority, payload = row.payload,
      keep = row.keep,
    })
    send()
    answers[index] = { id, key, true, 'pending' }
    created[#created + 1] = whole(id)
  end
end
record(by, 'backfill', name, why, '{"times":' .. #times .. ',"occurrences":[' .. table.concat(created, ',') .. ']}')
return answer(answers)
