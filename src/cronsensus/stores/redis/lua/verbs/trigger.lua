-- If two callers use one key, the second gets the occurrence that the first created. Downstream jobs get its nominal time.
-- needs: occurrences jobs
local name, key, by, why, payload, behind = unpack(args, 1, 6)
local job, refusal = living_here(name)
if not job then
  return refuse(refusal)
end
local standing = call('HGET', of_job(job, 'keys'), key)
if standing then
  return answer({ standing, false, read(occurrence_key(standing), 'state').state })
end
local others = {}
for index, one in ipairs(behind) do
  others[index], refusal = living_here(one[1])
  if not others[index] then
    return refuse(refusal)
  end
end
local nominal
if #behind > 0 then
  nominal = whole(now % 1000 == 0 and now - 1 or now) -- as chain_time in the model
end

local function make(of, key_of, values)
  local row = read(job_key(of), 'priority', 'payload', 'keep')
  row.key, row.origin, row.due, row.nominal = key_of, 'manual', NOW, nominal
  row.payload = values or row.payload
  return create(of, row)
end

local id, ids = make(job, key, payload), {}
for index, one in ipairs(behind) do
  ids[index] = whole(make(others[index], one[2]))
end
local downstream = #ids > 0 and ',"downstream":[' .. table.concat(ids, ',') .. ']' or ''
record(by, 'trigger', name, why, '{"occurrence":' .. whole(id) .. downstream .. '}')
return answer({ id, true, 'pending' })
