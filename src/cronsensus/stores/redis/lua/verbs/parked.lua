-- Parked occurrences, by id. Reads a bounded number of them and returns where it stopped, so that no reader keeps others
-- waiting.
-- needs: occurrences views
local MOST = 1000
local after, limit = unpack(args, 1, 2)
local parked, last_id = {}, false

local page = call('ZRANGEBYSCORE', PARKED, '(' .. after, '+inf', 'LIMIT', 0, MOST)
for _, id in ipairs(page) do
  if #parked >= limit then
    break
  end
  local row = read(occurrence_key(id), 'job', 'state', 'parked', 'nominal', 'created')
  if row.state == 'pending' and row.parked then
    parked[#parked + 1] = { id, try(name_of, row.job) or false, row.parked, row.nominal or false, row.created }
  else
    redis.pcall('ZREM', PARKED, id) -- see occurrences.lua; a server that is full, or only read, keeps it
  end
  last_id = id
end
if #page < MOST or #parked >= limit then
  last_id = false
end
return answer({ parked, last_id })
