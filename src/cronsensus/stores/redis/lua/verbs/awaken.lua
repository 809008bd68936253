-- Race: none, the script is one step; what is claimed or over by now is not asleep.
-- needs: occurrences
local ids, SENDER = unpack(args, 1, 2)
local woken = 0
for _, id in ipairs(ids) do
  local row = occurrence(id)
  if is_asleep(row) and try(awaken, id, row, {}) then
    woken = woken + 1
  end
end
send()
if woken > 0 then
  redis.pcall('PUBLISH', SPACE .. 'wake', SENDER)
end
return answer(woken)
