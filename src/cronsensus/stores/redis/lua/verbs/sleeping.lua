-- The batches that sleep with a complete list, by id. Looks at a bounded number and says where it stopped, so that no reader
-- keeps others waiting.
-- needs: occurrences views
local MOST = 1000
local after, limit = unpack(args, 1, 2)
local found, last = {}, false

local page = call('ZRANGEBYSCORE', LISTED, '(' .. after, '+inf', 'LIMIT', 0, MOST)
for _, id in ipairs(page) do
  if #found >= limit then
    break
  end
  local row = read(occurrence_key(id), 'job', 'state', 'due', 'nominal', 'created')
  if is_asleep(row) then
    found[#found + 1] = { id, try(name_of, row.job) or false, row.nominal or false, row.created }
  elseif row.state ~= 'pending' and row.state ~= 'running' then
    redis.pcall('ZREM', LISTED, id) -- a node of a version before this one ended it
  end
  last = id
end
if #page < MOST or #found >= limit then
  last = false
end
return answer({ found, last })
