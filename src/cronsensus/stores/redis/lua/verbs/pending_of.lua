-- How many occurrences of some jobs, by name, are pending.
-- needs: indexes
local counts = {}
for index, name in ipairs(args[1]) do
  local job, count = call('HGET', SPACE .. 'names', name), 0
  if job then
    for _, level in ipairs(call('ZRANGE', LEVELS, 0, -1)) do
      count = count + call('ZCARD', line_key(level, job .. ':s')) + call('ZCARD', line_key(level, job .. ':w'))
    end
  end
  counts[index] = count
end
return answer(counts)
