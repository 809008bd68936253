-- The jobs that have rows to prune now, or all that may have some later.
local most = args[1] and '+inf' or NOW
return answer(call('ZRANGEBYSCORE', SPACE .. 'prunable', '-inf', most))
