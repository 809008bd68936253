-- Run a final occurrence again, as a new one. If it was retried already, return its newest retry: of two operators in the
-- same instant, the second gets the occurrence that the first created.
-- needs: occurrences jobs
local id, key, by, why, allow_succeeded = unpack(args, 1, 5)
local old = read(
  occurrence_key(id), 'job', 'state', 'origin', 'nominal', 'priority', 'level', 'payload', 'parent', 'retried_as'
)
if not old.state then
  return refuse('NOTTHERE')
end
local newest, next_retry = id, old.retried_as
while next_retry do
  local row = read(occurrence_key(next_retry), 'retry_of', 'retried_as')
  if row.retry_of ~= newest then
    break -- it is no longer kept
  end
  newest, next_retry = next_retry, row.retried_as
end
if newest ~= id then
  local row = read(occurrence_key(newest), 'key', 'state')
  return answer({ newest, call('HGET', job_key(old.job), 'name'), row.key, false, row.state })
end
if old.state == 'pending' or old.state == 'running' then
  return refuse('ACTIVE ' .. old.state)
end
if old.state == 'succeeded' and not allow_succeeded then
  return refuse('FINAL')
end
local name = call('HGET', job_key(old.job), 'name')
local _, refusal = find_job_run_here(name)
if refusal then
  return refuse(refusal)
end
local origin = SERIAL[old.origin] and 'manual' or old.origin
if old.parent then
  origin = 'enqueue' -- an item of a batch, which runs alone now
end
local new_id = create(old.job, {
  key = key, origin = origin, due = NOW, nominal = old.nominal,
  priority = old.priority, level = old.level, payload = old.payload, retry_of = id, keep = call('HGET', job_key(old.job), 'keep'),
})
call('HSET', occurrence_key(id), 'retried_as', new_id)
record(by, 'retry', name, why, '{"occurrence":' .. integer_text(id) .. ',"retry":' .. integer_text(new_id) .. '}')
return answer({ new_id, name, key, true, 'pending' })
