-- needs: occurrences jobs
local name, key, by, why = unpack(args, 1, 4)
local job, refusal = living(name)
if not job then
  return refuse(refusal)
end
local row = read(job_key(job), 'priority', 'payload', 'keep')
row.key, row.origin, row.due = key, 'manual', NOW
local id = create(job, row)
record(by, 'trigger', name, why, '{"occurrence":' .. whole(id) .. '}')
return answer(id)
