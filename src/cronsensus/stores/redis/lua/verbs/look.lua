-- Read what a node decides by in a round: due jobs, what is pending, which sessions hold runs, and who shows a sign of life.
-- `partition` of `partitions` is the share of due jobs that the node reads (all: 0 of 1).
-- needs: sessions jobs
local limit, newest, partition, partitions, ahead, own, known, last_sent = unpack(args, 1, 8)
local DUE, PENDING = SPACE .. 'due', SPACE .. 'pending'
local NEAR, PAGE, FARTHEST = 16, 500, 20000

-- Return up to `most` due jobs of the partition, from either end of the index, and whether there may be more.
local function find(most, command, from, to)
  local due_jobs, seen, size = {}, 0, partitions == 1 and most or PAGE
  while #due_jobs < most and seen < FARTHEST do
    local page = call(command, DUE, from, to, 'LIMIT', seen, size)
    for _, job in ipairs(page) do
      if #due_jobs < most and job % partitions == partition then
        due_jobs[#due_jobs + 1] = job
      end
    end
    seen = seen + #page
    if #page < size then
      return due_jobs, false
    end
  end
  return due_jobs, #due_jobs < most
end

-- Usually few jobs come due soon. Then one page has all of them, and the next due time after them. Returns nil if there are
-- more than a page.
local function find_near()
  local page, due_by = call('ZRANGE', DUE, 0, NEAR - 1, 'WITHSCORES'), tonumber(now_plus(ahead))
  if #page == 2 * NEAR and tonumber(page[#page]) <= due_by then
    return nil
  end
  local due_jobs = {}
  for index = 1, #page, 2 do
    local due = tonumber(page[index + 1])
    if due > due_by then
      return due_jobs, page[index + 1]
    end
    due_jobs[#due_jobs + 1] = page[index]
  end
  return due_jobs, nil
end

local next_job, has_farther
local jobs = false
if partitions == 1 and limit >= NEAR then
  jobs, next_job = find_near()
end
if not jobs then
  jobs, has_farther = find(limit + 1, 'ZRANGEBYSCORE', '-inf', now_plus(ahead))
  next_job = call('ZRANGEBYSCORE', DUE, '(' .. now_plus(ahead), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end
local more = #jobs > limit or has_farther or false
if #jobs > limit then
  local newest_jobs = find(newest, 'ZREVRANGEBYSCORE', NOW, '-inf')
  local listed = {}
  for index = #jobs, limit - #newest_jobs + 1, -1 do
    jobs[index] = nil
  end
  for _, job in ipairs(jobs) do
    listed[job] = true
  end
  for index = #newest_jobs, 1, -1 do
    if not listed[newest_jobs[index]] then
      jobs[#jobs + 1] = newest_jobs[index]
    end
  end
end
for index, job in ipairs(jobs) do
  jobs[index] = try(state_row, job) or { job }
end

local earliest_pending = call('ZRANGE', PENDING, 0, 0, 'WITHSCORES')[2]
local next_pending = earliest_pending
if earliest_pending and tonumber(earliest_pending) <= now then
  next_pending = call('ZRANGEBYSCORE', PENDING, '(' .. NOW, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end
local parked = call('EXISTS', SPACE .. 'parked') == 1
local holders, holding = {}, call('ZRANGE', SPACE .. 'holding', 0, -1)
for index, session in ipairs(holding) do
  holders[index] = try(session_row, session) or { session }
end

-- How many sessions were ever opened, and the newest one: after a failover that lost a session, its number is given again.
local sessions_opened_text = (sessions_opened or '0') .. ' ' .. (newest_session or '')

-- Signs of life are checked if another session holds runs, or one was opened since `known`. Guests are not checked. All
-- guests are returned if signs are checked; else only if a session was opened since `last_sent`.
local others_hold = #holding > 1 or (holding[1] and holding[1] ~= own)
local checks_signs = known ~= false and (others_hold or known ~= sessions_opened_text)
local taking_turns, guests = list_live_nodes(last_sent == sessions_opened_text and not checks_signs)

-- Return which other sessions show a sign of life, and which do not, with what they recorded about it; false: nothing to
-- check. A replica gives no answer: the connections that show signs are those of the master.
local function read_signs()
  local asked, heard, silent = {}, {}, {}
  local function add_to_asked(sessions)
    for _, session in ipairs(sessions) do
      if session ~= own and not asked[session] then
        asked[session], asked[#asked + 1] = true, session
      end
    end
  end
  if not checks_signs then
    return false
  end
  add_to_asked(holding)
  if #taking_turns <= FEW then
    add_to_asked(taking_turns)
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
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels)) -- channel and number, alternately
    if subscribers.err then
      return 'refused'
    end
    for index = 1, #channels do
      local session = asked[start + index - 1]
      if subscribers[2 * index] > 0 then
        heard[#heard + 1] = session
      else
        local record = read(session_key(session), 'number', 'shown')
        silent[#silent + 1] = { session, tonumber(record.number) or 0, record.shown }
      end
    end
  end
  return { heard, silent }
end

return answer({
  NOW, jobs, more, next_job and at_score(next_job) or false, earliest_pending and tonumber(earliest_pending) <= now or false,
  next_pending and at_score(next_pending) or false, holders, taking_turns,
  guests, sessions_opened_text, read_signs(), parked,
})
