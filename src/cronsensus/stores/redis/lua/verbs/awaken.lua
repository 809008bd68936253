-- Race: none, the script is one step; what is claimed or over by now is parked no more.
-- needs: occurrences
local ids, SENDER = unpack(args, 1, 2)

-- Make it due as of its creation, not before its nominal time.
local function wake(id, row)
  local created, nominal = unpack(call('HMGET', occurrence_key(id), 'created', 'nominal'))
  awaken(id, row, nominal and (tonumber(nominal) or 0) > tonumber(created) and nominal or created, {})
  return true
end

local woken = 0
for _, id in ipairs(ids) do
  local row = occurrence(id)
  if row.state == 'pending' and row.parked and try(wake, id, row) then
    woken = woken + 1
  end
end
send()
if woken > 0 then
  redis.pcall('PUBLISH', SPACE .. 'wake', SENDER)
end
return answer(woken)
