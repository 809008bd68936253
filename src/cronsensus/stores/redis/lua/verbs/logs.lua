-- Lines of an occurrence's log, after some number of lines.
local id, after, limit = unpack(args, 1, 3)
return answer(call('LRANGE', SPACE .. 'log:' .. id, after, after + limit - 1))
