-- Is a session alive, and until when?

local OPEN, GUESTS, TURNING = SPACE .. 'open', SPACE .. 'guests', SPACE .. 'turning'

local function session_key(session)
  return SPACE .. 'session:' .. session
end

local function holds_key(session)
  return SPACE .. 'holds:' .. session
end

-- Whether the session was not ended and its lease has not run out.
local function alive(session)
  local lease_end = call('ZSCORE', OPEN, session)
  return lease_end and now < tonumber(lease_end)
end

local holders = {}

-- What starting and ending runs needs to know of a session, read once.
local function holder_of(session)
  holders[session] = holders[session] or read(session_key(session), 'node', 'number', 'functions')
  return holders[session]
end

-- Remember one more session that takes turns; whatever a node of an earlier release ended is forgotten.
local function takes_turns(session)
  for _, one in ipairs(call('SMEMBERS', TURNING)) do
    if not call('ZSCORE', OPEN, one) then
      call('SREM', TURNING, one)
    end
  end
  call('SADD', TURNING, session)
end

local FEW = 100

local function without_guests(sessions)
  if #sessions == 0 then
    return sessions, {}
  end
  local found, guests = {}, {}
  for index, is_guest in ipairs(call('SMISMEMBER', GUESTS, unpack(sessions))) do
    local some = is_guest == 0 and found or guests
    some[#some + 1] = sessions[index]
  end
  return found, guests
end

-- The live sessions that take turns, and where they are few the live guests. Each node asks each second, so there two
-- commands are enough, and one where the caller knows the guests: false, and they are among the others.
-- Where they are many, guests are not read, however many, unless there are sessions that nodes of an earlier release
-- opened: those are not remembered, and then not all that are open are remembered or guests.
local function turning(knows_guests)
  local few = call('ZRANGEBYSCORE', OPEN, '(' .. NOW, '+inf', 'LIMIT', 0, FEW)
  if #few < FEW and knows_guests then
    return few, false
  elseif #few < FEW then
    return without_guests(few)
  end
  local found, known = {}, call('SCARD', GUESTS)
  for _, session in ipairs(call('SMEMBERS', TURNING)) do
    local lease_end = call('ZSCORE', OPEN, session)
    known = known + (lease_end and 1 or 0)
    if lease_end and now < tonumber(lease_end) then
      found[#found + 1] = session
    end
  end
  if known == call('ZCARD', OPEN) then
    return found, false
  end
  found = {}
  local live = call('ZRANGEBYSCORE', OPEN, '(' .. NOW, '+inf')
  for start = 1, #live, FEW do
    for _, session in ipairs(without_guests({ unpack(live, start, math.min(start + FEW - 1, #live)) })) do
      found[#found + 1] = session
    end
  end
  return found, false
end

-- See to it that the store says which it is: a space that was emptied has no identity until a session is opened, and then
-- another one. A space that is older than identities does not know when it began.
local function have_identity()
  if not identity then
    identity = redis.sha1hex(NOW .. ARGV[1])
    call('HSET', META, 'identity', identity)
    if not schema then
      call('HSET', META, 'born', NOW)
    end
  end
end

-- Also to an earlier moment. Further fields and values are written with it.
local function set_lease(session, lease, ...)
  call('ZADD', OPEN, later(lease), session)
  call('HSET', session_key(session), 'renewed', NOW, ...)
end

-- A session as reads return it.
local function session_row(session)
  local row = call(
    'HMGET', session_key(session),
    'spec', 'started', 'renewed', 'draining', 'ended', 'ended_as', 'ended_why'
  )
  local lease_end = call('ZSCORE', OPEN, session)
  row[8] = lease_end and whole(tonumber(lease_end) - now)
  row[9] = call('ZCARD', holds_key(session)) + call('SCARD', SPACE .. 'locks:' .. session)
  return row
end
