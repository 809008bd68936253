-- The ends of the ledgers of some jobs, by name: their last occurrences and verdict ranges.
-- needs: glances
local names, limit = unpack(args, 1, 2)
local found = {}
for index, name in ipairs(names) do
  local job = call('HGET', SPACE .. 'names', name)
  found[index] = job and {
    glances_of(call('ZREVRANGE', of_job(job, 'ids'), 0, limit - 1)),
    call('ZREVRANGE', of_job(job, 'ranges'), 0, limit - 1),
  }
end
return answer(found)
