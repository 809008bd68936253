-- Is a session alive, and until when?

local OPEN = SPACE .. 'open'

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
