-- The names of all jobs that are declared in code and not retired.
return answer(call('ZRANGE', SPACE .. 'code', 0, -1))
