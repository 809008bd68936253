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
