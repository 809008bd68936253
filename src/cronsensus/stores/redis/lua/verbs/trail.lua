local target, after, limit = unpack(args, 1, 3)
local TRAIL = SPACE .. 'trail'
local from = after and '(' .. after or '+inf'
local found = {}
if target then
  for _, id in ipairs(call('ZREVRANGEBYSCORE', TRAIL .. ':' .. target, from, '-inf', 'LIMIT', 0, limit)) do
    found[#found + 1] = { id, call('ZRANGEBYSCORE', TRAIL, id, id)[1] or '' }
  end
  return answer(found)
end
local rows = call('ZREVRANGEBYSCORE', TRAIL, from, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
for at = 1, #rows, 2 do
  found[#found + 1] = { rows[at + 1], rows[at] }
end
return answer(found)
