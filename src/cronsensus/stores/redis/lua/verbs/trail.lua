-- Entries of the trail, the newest first: of one target or of all.
local target, after, limit = unpack(args, 1, 3)
local TRAIL = SPACE .. 'trail'
local from = after and '(' .. after or '+inf'
local entries = {}
if target then
  for _, id in ipairs(call('ZREVRANGEBYSCORE', TRAIL .. ':' .. target, from, '-inf', 'LIMIT', 0, limit)) do
    entries[#entries + 1] = { id, call('ZRANGEBYSCORE', TRAIL, id, id)[1] or '' }
  end
  return answer(entries)
end
local rows = call('ZREVRANGEBYSCORE', TRAIL, from, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
for index = 1, #rows, 2 do
  entries[#entries + 1] = { rows[index + 1], rows[index] }
end
return answer(entries)
