-- How many runs of a job its concurrency still allows.
-- needs: occurrences

local holders = {} -- session → whether it is alive

local function is_alive(holder)
  if holders[holder] == nil then
    holders[holder] = alive(holder) or false
  end
  return holders[holder]
end

-- How many more of a job may run. Runs that a dead session left behind do not count.
local function runs_left_of(job, most)
  if not most then
    return math.huge
  end
  local key, runs_left = of_job(job, 'running'), tonumber(most)
  if call('HLEN', key) == 0 then
    return runs_left
  end
  for _, holder in ipairs(call('HVALS', key)) do
    if is_alive(holder) then
      runs_left = runs_left - 1
    end
  end
  if runs_left <= 0 then
    for _, id in ipairs(call('HKEYS', key)) do
      if drop_unless_running(id, key, 'HDEL') then
        runs_left = runs_left + 1
      end
    end
  end
  return runs_left
end
