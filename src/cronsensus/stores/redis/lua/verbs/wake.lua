-- Make parked occurrences due; with `listed`, complete the list of a batch.
-- Race: none, the script is one step. An occurrence that was claimed or has ended by now is not parked any more; of two
-- callers that complete a list, the second finds that it is complete.
-- needs: occurrences
local ids, listed, SENDER = unpack(args, 1, 3)

-- Make it due as of its creation, not before its nominal time.
local function wake_parked(id, row)
  local created, nominal = unpack(call('HMGET', occurrence_key(id), 'created', 'nominal'))
  wake(id, row, nominal and (tonumber(nominal) or 0) > tonumber(created) and nominal or created, {})
  return true
end

-- Record how many items the list of a batch has, and make the batch due as of its creation.
local function complete_list(id, row)
  row.listed = listed
  wake(id, row, call('HGET', occurrence_key(id), 'created'), { 'listed', listed })
end

local woken = 0
for _, id in ipairs(ids) do
  local row = occurrence(id)
  local pending = row.state == 'pending'
  if listed and pending and not (row.listed or row.parked) then
    complete_list(id, row)
    woken = woken + 1
  elseif not listed and pending and row.parked and try(wake_parked, id, row) then
    woken = woken + 1
  end
end
send()
if woken > 0 then
  redis.pcall('PUBLISH', SPACE .. 'wake', SENDER)
end
return answer(woken)
