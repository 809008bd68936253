-- needs: sessions jobs
local limit, newest, place, of, ahead, own, known, last_sent = unpack(args, 1, 8)
local DUE, PENDING = SPACE .. 'due', SPACE .. 'pending'
local NEAR, PAGE, FARTHEST = 16, 500, 20000

-- Up to `most` jobs of the partition, from either end of the index.
local function find(most, command, from, to)
  local found, seen, size = {}, 0, of == 1 and most or PAGE
  while #found < most and seen < FARTHEST do
    local page = call(command, DUE, from, to, 'LIMIT', seen, size)
    for _, job in ipairs(page) do
      if #found < most and job % of == place then
        found[#found + 1] = job
      end
    end
    seen = seen + #page
    if #page < size then
      return found, false
    end
  end
  return found, #found < most
end

-- Usually few jobs come due soon. Then a single page has them, and the next due time; nil: it does not.
local function find_near()
  local page, til = call('ZRANGE', DUE, 0, NEAR - 1, 'WITHSCORES'), tonumber(later(ahead))
  if #page == 2 * NEAR and tonumber(page[#page]) <= til then
    return nil
  end
  local found = {}
  for index = 1, #page, 2 do
    local at = tonumber(page[index + 1])
    if at > til then
      return found, page[index + 1]
    end
    found[#found + 1] = page[index]
  end
  return found, nil
end

local next_job, farther
local jobs = false
if of == 1 and limit >= NEAR then
  jobs, next_job = find_near()
end
if not jobs then
  jobs, farther = find(limit + 1, 'ZRANGEBYSCORE', '-inf', later(ahead))
  next_job = call('ZRANGEBYSCORE', DUE, '(' .. later(ahead), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end
local more = #jobs > limit or farther or false
if #jobs > limit then
  local last = find(newest, 'ZREVRANGEBYSCORE', NOW, '-inf')
  local there = {}
  for index = #jobs, limit - #last + 1, -1 do
    jobs[index] = nil
  end
  for _, job in ipairs(jobs) do
    there[job] = true
  end
  for index = #last, 1, -1 do
    if not there[last[index]] then
      jobs[#jobs + 1] = last[index]
    end
  end
end
for index, job in ipairs(jobs) do
  jobs[index] = try(state_row, job) or { job }
end

local first = call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')[2]
local next_pending = first
if first and tonumber(first) <= now then
  next_pending = call('ZRANGEBYSCORE', PENDING, '(' .. NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end
local parked = call('EXISTS', SPACE .. 'parked') == 1
local holders, holding = {}, call('ZRANGE', SPACE .. 'holding', 0, -1)
for index, session in ipairs(holding) do
  holders[index] = try(session_row, session) or { session }
end

-- How many sessions were opened, and the last of them: after a failover that lost a session, its number is given again.
local opened = (sessions_opened or '0') .. ' ' .. (newest_session or '')

-- Which other sessions show a sign of life, and which do not, with what they recorded about it; false if there is nothing
-- to check, because no other session holds runs, and none was opened since `known`. A replica gives no answer: the
-- connections that show signs are those of another server.
-- Guests are not checked. All of them are returned if signs are checked; else only if one was opened since `last_sent`.
local others_hold = #holding > 1 or (holding[1] and holding[1] ~= own)
local asks = known ~= false and (others_hold or known ~= opened)
local taking_turns, guests = turning(last_sent == opened and not asks)
local function signs()
  local asked, there, gone = {}, {}, {}
  local function ask_for(sessions)
    for _, session in ipairs(sessions) do
      if session ~= own and not asked[session] then
        asked[session], asked[#asked + 1] = true, session
      end
    end
  end
  if not asks then
    return false
  end
  ask_for(holding)
  if #taking_turns <= FEW then
    ask_for(taking_turns)
  end
  local server = redis.pcall('INFO', 'replication')
  if type(server) == 'table' or not string.find(server, 'role:master', 1, true) then
    return 'refused'
  end
  for start = 1, #asked, FEW do
    local channels = {}
    for index = start, math.min(start + FEW - 1, #asked) do
      channels[#channels + 1] = SPACE .. 'sign:' .. asked[index]
    end
    local heard = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
    if heard.err then
      return 'refused'
    end
    for index = 1, #channels do
      local session = asked[start + index - 1]
      if heard[2 * index] > 0 then
        there[#there + 1] = session
      else
        local record = read(session_key(session), 'number', 'shown')
        gone[#gone + 1] = { session, tonumber(record.number) or 0, record.shown }
      end
    end
  end
  return { there, gone }
end

return answer({
  NOW, jobs, more, next_job and at_score(next_job) or false, first and tonumber(first) <= now or false,
  next_pending and at_score(next_pending) or false, holders, taking_turns,
  guests, opened, signs(), parked,
})
