-- If two operators retry at the same instant, the second one gets the occurrence that the first one created.
-- needs: occurrences jobs
local id, key, by, why, again = unpack(args, 1, 5)
local old = read(
  occurrence_key(id), 'job', 'state', 'origin', 'nominal', 'priority', 'level', 'payload', 'parent', 'retried_as'
)
if not old.state then
  return refuse('NOTTHERE')
end
local newest, following = id, old.retried_as
while following do
  local row = read(occurrence_key(following), 'retry_of', 'retried_as')
  if row.retry_of ~= newest then
    break -- it is no longer kept
  end
  newest, following = following, row.retried_as
end
if newest ~= id then
  local row = read(occurrence_key(newest), 'key', 'state')
  return answer({ newest, call('HGET', job_key(old.job), 'name'), row.key, false, row.state })
end
if old.state == 'pending' or old.state == 'running' then
  return refuse('ACTIVE ' .. old.state)
end
if old.state == 'succeeded' and not again then
  return refuse('FINAL')
end
local name = call('HGET', job_key(old.job), 'name')
local _, refusal = living_here(name)
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
call('HSET', occurrence_key(id), 'retried_as', made)
record(by, 'retry', name, why, '{"occurrence":' .. whole(id) .. ',"retry":' .. whole(made) .. '}')
return answer({ made, name, key, true, 'pending' })
