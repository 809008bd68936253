-- How much of a job may run.
-- needs: occurrences

local holders = {} -- session → whether it is alive

local function is_alive(holder)
  if holders[holder] == nil then
    holders[holder] = alive(holder) or false
  end
  return holders[holder]
end

-- How many more of a job may run. Runs that a dead session left behind do not count.
local function room_of(job, most)
  if not most then
    return math.huge
  end
  local key, room = of_job(job, 'running'), tonumber(most)
  if call('HLEN', key) == 0 then
    return room
  end
  for _, holder in ipairs(call('HVALS', key)) do
    if is_alive(holder) then
      room = room - 1
    end
  end
  if room <= 0 then
    for _, id in ipairs(call('HKEYS', key)) do
      if drop_unless_running(id, key, 'HDEL') then
        room = room + 1
      end
    end
  end
  return room
end
