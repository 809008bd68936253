-- needs: occurrences jobs
local name, key, by, why, payload = unpack(args, 1, 5)
local job, refusal = living(name)
if not job then
  return refuse(refusal)
end
local row = read(job_key(job), 'priority', 'payload', 'keep')
row.key, row.origin, row.due = key, 'manual', NOW
if payload then
  row.payload = payload
end
local id = create(job, row)
record(by, 'trigger', name, why, '{"occurrence":' .. whole(id) .. '}')
return answer(id)
