-- Of two callers the second finds that the list is complete.
-- needs: occurrences
local id, listed, SENDER = unpack(args, 1, 3)
local row = occurrence(id)
if row.state ~= 'pending' or row.listed or row.parked then
  return answer(false)
end
row.listed = listed
awaken(id, row, call('HGET', occurrence_key(id), 'created'), { 'listed', listed })
send()
redis.pcall('PUBLISH', SPACE .. 'wake', SENDER)
return answer(true)
