-- Create a manual occurrence under a key, and one of each downstream job with the same nominal time: `downstream_jobs` are
-- {name of the job, key}. If two callers use one key, the second gets the occurrence that the first created.
-- needs: occurrences jobs
local name, key, by, why, payload, downstream_jobs = unpack(args, 1, 6)
local job, refusal = find_job_run_here(name)
if not job then
  return refuse(refusal)
end
local existing = call('HGET', job_part_key(job, 'keys'), key)
if existing then
  return answer({ existing, false, read(occurrence_key(existing), 'state').state })
end
local downstream_ids = {}
for index, downstream in ipairs(downstream_jobs) do
  downstream_ids[index], refusal = find_job_run_here(downstream[1])
  if not downstream_ids[index] then
    return refuse(refusal)
  end
end
local nominal
if #downstream_jobs > 0 then
  nominal = integer_text(now % 1000 == 0 and now - 1 or now) -- as chain_time in the model
end

local function create_manual(of_number, key_of, values)
  local row = read(job_key(of_number), 'priority', 'payload', 'keep')
  row.key, row.origin, row.due, row.nominal = key_of, 'manual', NOW, nominal
  row.payload = values or row.payload
  return create(of_number, row)
end

local id, created_ids = create_manual(job, key, payload), {}
for index, downstream in ipairs(downstream_jobs) do
  created_ids[index] = integer_text(create_manual(downstream_ids[index], downstream[2]))
end
local details_part = #created_ids > 0 and ',"downstream":[' .. table.concat(created_ids, ',') .. ']' or ''
record(by, 'trigger', name, why, '{"occurrence":' .. integer_text(id) .. details_part .. '}')
return answer({ id, true, 'pending' })
