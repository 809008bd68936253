-- Two operators who retry at the same instant make two: the key is new each time.
-- needs: occurrences jobs
local id, key, by, why = unpack(args, 1, 4)
local old = read(occurrence_key(id), 'job', 'state', 'origin', 'nominal', 'priority', 'level', 'payload', 'parent')
if not old.state then
  return refuse('NOTTHERE')
end
if old.state == 'pending' or old.state == 'running' then
  return refuse('ACTIVE ' .. old.state)
end
local name = call('HGET', job_key(old.job), 'name')
local _, refusal = living(name)
if refusal then
  return refuse(refusal)
end
local origin = SERIAL[old.origin] and 'manual' or old.origin
if old.parent then
  origin = 'enqueue' -- an item of a batch, which runs alone now
end
local made = create(old.job, {
  key = key, origin = origin, due = NOW, nominal = old.nominal,
  priority = old.priority, level = old.level, payload = old.payload, retry_of = id, keep = call('HGET', job_key(old.job), 'keep'),
})
record(by, 'retry', name, why, '{"occurrence":' .. whole(id) .. ',"retry":' .. whole(made) .. '}')
return answer({ made, name })
