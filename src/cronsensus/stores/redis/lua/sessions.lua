-- Is a session alive, and until when?

local OPEN, GUESTS, TURNING = SPACE .. 'open', SPACE .. 'guests', SPACE .. 'turning'

local function session_key(session)
  return SPACE .. 'session:' .. session
end

local function holds_key(session)
  return SPACE .. 'holds:' .. session
end

-- Whether nobody ended the session and its lease has not run out.
local function alive(session)
  local lease_end = call('ZSCORE', OPEN, session)
  return lease_end and now < tonumber(lease_end)
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

-- The live sessions that take turns. Guests, however many, are not read, unless there are sessions that nodes of an
-- earlier release opened: those are not remembered, and then not all that are open are remembered or guests.
local function turning()
  local found, known = {}, call('SCARD', GUESTS)
  for _, session in ipairs(call('SMEMBERS', TURNING)) do
    local lease_end = call('ZSCORE', OPEN, session)
    known = known + (lease_end and 1 or 0)
    if lease_end and now < tonumber(lease_end) then
      found[#found + 1] = session
    end
  end
  if known == call('ZCARD', OPEN) then
    return found
  end
  found = {}
  for _, session in ipairs(call('ZRANGEBYSCORE', OPEN, '(' .. NOW, '+inf')) do
    if call('SISMEMBER', GUESTS, session) == 0 then
      found[#found + 1] = session
    end
  end
  return found
end

-- Which store this is; a space that was emptied has none until a session is opened, and then another.
local function identity()
  return call('HGET', META, 'identity') or ''
end

-- A space that is older than identities does not know when it began.
local function have_identity()
  if call('HEXISTS', META, 'identity') == 0 then
    call('HSET', META, 'identity', redis.sha1hex(NOW .. ARGV[1]))
    if not schema then
      call('HSET', META, 'born', NOW)
    end
  end
end

-- Also to an earlier moment.
local function set_lease(session, lease)
  call('ZADD', OPEN, later(lease), session)
  call('HSET', session_key(session), 'renewed', NOW)
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
