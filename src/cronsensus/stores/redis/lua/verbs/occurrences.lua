-- Occurrences by id that meet some conditions. Reads a bounded number of them and returns where it stopped, so that no
-- reader keeps others waiting: a caller that wants more calls again from there.
-- needs: views
local FEW, MOST = 1000, 1000 -- so many are collected and sorted; so many are looked at in one call
local STATES = { 'pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped', 'missed' }

local where, after, limit, newest_first = unpack(args, 1, 4)
local name, states, origin, key, from, upto, session, parent = unpack(where, 1, 8)
local job = name and call('HGET', SPACE .. 'names', name)
if name and not job then
  return answer({ {}, {}, false })
end
local wanted
if states then
  wanted = {}
  for _, state in ipairs(states) do
    wanted[state] = true
  end
end

local function only(...)
  local rest = #states
  for _, state in ipairs({ ... }) do
    rest = rest - (wanted[state] and 1 or 0)
  end
  return rest == 0
end

-- The ids of everything that may match, if they are few.
local function collect()
  local ids = {}
  local function add(found)
    for _, id in ipairs(found) do
      ids[#ids + 1] = id
    end
  end
  local function few(set)
    return #ids + call('ZCARD', set) <= FEW
  end
  if job and key then
    return { call('HGET', job_part_key(job, 'keys'), key) or nil }
  end
  if parent then
    return nil -- a page of them
  end
  if job and (from or upto) then
    local low, high, set = from or '-inf', upto or '+inf', job_part_key(job, 'nominal')
    if call('ZCOUNT', set, low, high) <= FEW then
      return call('ZRANGEBYSCORE', set, low, high)
    end
  end
  if not wanted then
    return nil
  end
  if session and only('running') then
    return call('ZRANGE', SPACE .. 'holds:' .. session, 0, -1)
  end
  if only('pending', 'running') and job then
    add(call('HKEYS', job_part_key(job, 'running')))
    for _, level in ipairs(call('ZRANGE', SPACE .. 'levels', 0, -1)) do
      for _, kind in ipairs({ ':s', ':w' }) do
        local line = SPACE .. 'line:' .. level .. ':' .. job .. kind
        if not few(line) then
          return nil
        end
        add(call('ZRANGE', line, 0, -1))
      end
    end
    return ids
  end
  if wanted.succeeded then
    return nil
  end
  for _, state in ipairs(states) do
    local set = SPACE .. ((state == 'pending' or state == 'running') and state or 'state:' .. state)
    if not few(set) then
      return nil
    end
    add(call('ZRANGE', set, 0, -1))
  end
  return ids
end

local rows, names_seen, last = {}, {}, false

local function look_at(id)
  local row = occurrence_row(id)
  if row[1]
    and (not job or row[1] == job)
    and (not wanted or wanted[row[4]])
    and (not origin or row[3] == origin)
    and (not key or row[2] == key)
    and (not session or row[12] == session)
    and (not parent or row[25] == parent)
    and (not from or (row[5] and tonumber(row[5]) >= tonumber(from)))
    and (not upto or (row[5] and tonumber(row[5]) <= tonumber(upto)))
  then
    rows[#rows + 1] = row
    if not names[row[1]] then
      names_seen[#names_seen + 1] = { row[1], name_of(row[1]) }
    end
  end
end

local function is_beyond(id)
  return not after or (newest_first and id < after) or (not newest_first and id > after)
end

local function in_order(ids)
  table.sort(ids, function(one, other)
    if newest_first then
      return one > other
    end
    return one < other
  end)
end

local function page_of(set, most)
  if newest_first then
    return call('ZREVRANGEBYSCORE', set, after and '(' .. after or '+inf', '-inf', 'LIMIT', 0, most)
  end
  return call('ZRANGEBYSCORE', set, after and '(' .. after or '-inf', '+inf', 'LIMIT', 0, most)
end

-- The next items of a batch, the first of all pages, one for each state; and whether there are no more.
local function page_of_items()
  local ids, page, most = {}, {}, math.min(MOST, limit)
  for _, state in ipairs(STATES) do
    local asked = not wanted or wanted[state]
    for _, id in ipairs(asked and page_of(SPACE .. 'items:' .. parent .. ':' .. state, most) or {}) do
      ids[#ids + 1] = id
    end
  end
  in_order(ids)
  for index = 1, math.min(most, #ids) do
    if ids[index] ~= page[#page] then -- it may be in two, see occurrences.lua
      page[#page + 1] = ids[index]
    end
  end
  return page, #ids < most
end

local ids = collect()
if ids then
  in_order(ids)
  for _, id in ipairs(ids) do
    if #rows >= limit then
      break
    end
    if is_beyond(id) then
      try(look_at, id)
    end
  end
else
  local set = job and job_part_key(job, 'ids') or SPACE .. 'ids'
  local single = states and #states == 1 and states[1]
  if single and (single == 'failed' or single == 'cancelled' or single == 'skipped' or single == 'missed') then
    local state = SPACE .. 'state:' .. single
    set = call('ZCARD', state) < call('ZCARD', set) and state or set
  end
  local page, done
  if parent then
    page, done = page_of_items()
  else
    page = page_of(set, MOST)
    done = #page < MOST
  end
  for _, id in ipairs(page) do
    if #rows >= limit then
      break
    end
    try(look_at, id)
    last = id
  end
  if #rows >= limit or done then
    last = false
  end
end
return answer({ rows, names_seen, last })
