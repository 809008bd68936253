local target, after, limit = unpack(args, 1, 3)
local TRAIL = SPACE .. 'trail'
local from = after and '(' .. after or '+inf'
if not target then
  return answer(call('ZREVRANGEBYSCORE', TRAIL, from, '-inf', 'LIMIT', 0, limit))
end
local found = {}
for _, id in ipairs(call('ZREVRANGEBYSCORE', TRAIL .. ':' .. target, from, '-inf', 'LIMIT', 0, limit)) do
  found[#found + 1] = call('ZRANGEBYSCORE', TRAIL, id, id)[1]
end
return answer(found)
