-- The attempts of some occurrences.
-- needs: views
local runs = {}
for index, id in ipairs(args[1]) do
  local row = call(
    'HMGET', SPACE .. 'occurrence:' .. id,
    'job', 'key', 'nominal', 'state', 'attempt', 'token', 'session', 'node', 'started', 'finished', 'end', 'reason', 'error'
  )
  runs[index] = row[1] and { name_of(row[1]), row, try(call, 'LRANGE', SPACE .. 'attempts:' .. id, 0, -1) or {} }
end
return answer(runs)
