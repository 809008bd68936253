-- The ends of the ledgers of some jobs, by name: their last occurrences, each batch for its items, and verdict ranges.
-- needs: glances
local names, limit, looked = unpack(args, 1, 3)

-- The batches of a job: those among its newest rows; and those found by nominal time, because one batch may have made more
-- rows than are read. Items, and rows of other jobs, are passed over.
local function whole(job)
  local ids, seen = {}, {}
  local function parent_of(id)
    local parent = redis.pcall('HGET', SPACE .. 'occurrence:' .. id, 'parent')
    return type(parent) == 'string' and parent
  end
  local function add(id)
    if not seen[id] and not parent_of(id) and redis.pcall('HGET', SPACE .. 'occurrence:' .. id, 'job') == job then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
  for _, id in ipairs(call('ZREVRANGE', of_job(job, 'nominal'), 0, limit - 1)) do
    add(id)
  end
  for _, id in ipairs(call('ZREVRANGE', of_job(job, 'ids'), 0, looked - 1)) do
    add(parent_of(id) or id)
  end
  table.sort(ids, function(one, other)
    return one > other
  end)
  local page = {}
  for index = 1, math.min(limit, #ids) do
    page[index] = ids[index]
  end
  return glances_of(page)
end

local function last_of(job)
  local rows = glances_of(call('ZREVRANGE', of_job(job, 'ids'), 0, limit - 1))
  for _, row in ipairs(rows) do
    if row[13] then
      return whole(job)
    end
  end
  return rows
end

local found = {}
for index, name in ipairs(names) do
  local job = call('HGET', SPACE .. 'names', name)
  found[index] = job and { last_of(job), call('ZREVRANGE', of_job(job, 'ranges'), 0, limit - 1) }
end
return answer(found)
