-- How many runs of a job its concurrency still allows.
-- needs: occurrences

local alive_holders = {} -- session → whether it is alive

local function is_holder_alive(holder)
  if alive_holders[holder] == nil then
    alive_holders[holder] = is_session_alive(holder) or false
  end
  return alive_holders[holder]
end

-- Return how many more runs of a job may start. Runs of dead sessions do not count against the limit.
local function runs_left_of(job, concurrency)
  if not concurrency then
    return math.huge
  end
  local key, runs_left = job_part_key(job, 'running'), tonumber(concurrency)
  if call('HLEN', key) == 0 then
    return runs_left
  end
  for _, holder in ipairs(call('HVALS', key)) do
    if is_holder_alive(holder) then
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
