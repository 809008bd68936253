-- Create an occurrence for each of some past nominal times that has neither an active nor a succeeded one. Of two operators in
-- the same instant, the second finds what the first created. `times` are {nominal, key, spare key: used if the key is taken}.
-- needs: occurrences jobs
local name, times, by, why = unpack(args, 1, 4)
local job, refusal = find_job_run_here(name)
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
local function find_existing(nominal)
  local existing
  for _, id in ipairs(call('ZRANGEBYSCORE', job_part_key(job, 'nominal'), nominal, nominal)) do
    local row = read(occurrence_key(id), 'state', 'key', 'nominal')
    if row.nominal == nominal and (row.state == 'pending' or row.state == 'running' or row.state == 'succeeded') then
      existing = { id, row.key, false, row.state }
    end
  end
  return existing
end

local answers, created = {}, {}
for index, time in ipairs(times) do
  local nominal, key, spare_key = unpack(time, 1, 3)
  answers[index] = find_existing(nominal)
  if not answers[index] then
    if call('HEXISTS', job_part_key(job, 'keys'), key) == 1 then
      key = spare_key
    end
    local id = create(job, {
      key = key, origin = 'backfill', nominal = nominal, due = NOW, priority = row.priority, payload = row.payload,
      keep = row.keep,
    })
    send()
    answers[index] = { id, key, true, 'pending' }
    created[#created + 1] = integer_text(id)
  end
end
record(by, 'backfill', name, why, '{"times":' .. #times .. ',"occurrences":[' .. table.concat(created, ',') .. ']}')
return answer(answers)
