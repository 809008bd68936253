-- The names of all living jobs of code.
return answer(call('ZRANGE', SPACE .. 'code', 0, -1))
