-- Cancel a pending occurrence, or ask the session of a running one to cancel it.
-- needs: occurrences
local id, by, why, reason = unpack(args, 1, 4)
local row = occurrence(id)
if not row.state then
  return refuse('NOTTHERE')
end
if row.state ~= 'pending' and row.state ~= 'running' then
  return refuse('FINAL ' .. row.state)
end
local state = ask_to_cancel(id, row, reason)
record(by, 'cancel', call('HGET', job_key(row.job), 'name'), why, '{"occurrence":' .. integer_text(id) .. '}')
return answer(state)
