-- Read the newest entries of the ledgers of some jobs, by name: their last occurrences (a batch, not its items) and their
-- last verdict ranges.
-- needs: glances
local names, limit, newest_rows = unpack(args, 1, 3)

-- Return the last occurrences of a job that has batches, without the items of these: those among its newest rows, and those
-- found by nominal time, because one batch may have more items than the rows that are read.
local function glances_with_batches(job)
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
  for _, id in ipairs(call('ZREVRANGE', job_part_key(job, 'nominal'), 0, limit - 1)) do
    add(id)
  end
  for _, id in ipairs(call('ZREVRANGE', job_part_key(job, 'ids'), 0, newest_rows - 1)) do
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

local function last_glances(job)
  local rows = glances_of(call('ZREVRANGE', job_part_key(job, 'ids'), 0, limit - 1))
  for _, row in ipairs(rows) do
    if row[13] then
      return glances_with_batches(job)
    end
  end
  return rows
end

local answers = {}
for index, name in ipairs(names) do
  local job = call('HGET', SPACE .. 'names', name)
  answers[index] = job and { last_glances(job), call('ZREVRANGE', job_part_key(job, 'ranges'), 0, limit - 1) }
end
return answer(answers)
