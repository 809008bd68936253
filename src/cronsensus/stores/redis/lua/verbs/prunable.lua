-- The jobs of which something may be pruned by now, or all of which something ever may.
local most = args[1] and '+inf' or NOW
return answer(call('ZRANGEBYSCORE', SPACE .. 'prunable', '-inf', most))
