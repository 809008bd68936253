-- Delete the occurrence under a key, so that the key is free; a running one only with `running`.
-- needs: occurrences deleting
local name, key, by, why, running, details, only = unpack(args, 1, 7)
local job = call('HGET', SPACE .. 'names', name)
local id = job and call('HGET', job_part_key(job, 'keys'), key)
if not id or (only and only ~= id) then
  return answer(false)
end
local row = occurrence(id)
local was = row.state
if was == 'running' and not running then
  return refuse('RUNNING')
end
if was == 'running' then
  leave_running(id, row)
elseif was == 'pending' then
  leave_pending(id, row)
end
if SERIAL[row.origin] then
  gather('ZREM', job_part_key(job, 'serial'), id)
end
send()
delete_final(job, id, {
  key = key, state = was, nominal = call('HGET', occurrence_key(id), 'nominal'), parent = row.parent,
})
record(by, 'forget', name, why, '{"occurrence":' .. integer_text(id) .. ',"key":' .. details .. ',"state":"' .. was .. '"}')
return answer(was)
