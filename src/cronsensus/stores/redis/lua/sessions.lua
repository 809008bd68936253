-- Sessions: whether they are alive, and their leases.

local OPEN, GUESTS, TURNING = SPACE .. 'open', SPACE .. 'guests', SPACE .. 'turning'

local function session_key(session)
  return SPACE .. 'session:' .. session
end

local function holds_key(session)
  return SPACE .. 'holds:' .. session
end

-- Whether the session was not ended and its lease has not run out.
local function is_session_alive(session)
  local lease_end = call('ZSCORE', OPEN, session)
  return lease_end and now < tonumber(lease_end)
end

local holders = {}

-- The fields of a session that starting and ending runs need, read once.
local function holder_of(session)
  holders[session] = holders[session] or read(session_key(session), 'node', 'number', 'functions')
  return holders[session]
end

local FEW = 100

local function split_guests(sessions)
  if #sessions == 0 then
    return sessions, {}
  end
  local nodes, guests = {}, {}
  for index, is_guest in ipairs(call('SMISMEMBER', GUESTS, unpack(sessions))) do
    local group = is_guest == 0 and nodes or guests
    group[#group + 1] = sessions[index]
  end
  return nodes, guests
end

-- Return the live nodes, and the live guests (sessions that are no nodes). Each node calls this every second, so two commands
-- must be enough. With `knows_guests` one command is: the first answer then includes guests, the second is false. If there
-- are many sessions, guests are not read, and the second is false, too.
local function list_live_nodes(knows_guests)
  local few = call('ZRANGEBYSCORE', OPEN, '(' .. NOW, '+inf', 'LIMIT', 0, FEW)
  if #few < FEW and knows_guests then
    return few, false
  elseif #few < FEW then
    return split_guests(few)
  end
  local nodes = {}
  for _, session in ipairs(call('SMEMBERS', TURNING)) do
    if is_session_alive(session) then
      nodes[#nodes + 1] = session
    end
  end
  return nodes, false
end

-- Give the store an identity and the time of its creation if it has none. An emptied namespace has none until a session is
-- opened, and then gets a new one.
local function ensure_identity()
  if not identity then
    identity = redis.sha1hex(NOW .. ARGV[1])
    call('HSET', META, 'identity', identity, 'born', NOW)
  end
end

-- Set the lease, also to an earlier moment. Further fields and values are written with it.
local function set_lease(session, lease, ...)
  call('ZADD', OPEN, now_plus(lease), session)
  call('HSET', session_key(session), 'renewed', NOW, ...)
end

-- A session as reads return it.
local function session_row(session)
  local row = call(
    'HMGET', session_key(session),
    'spec', 'started', 'renewed', 'draining', 'ended', 'ended_as', 'ended_why'
  )
  local lease_end = call('ZSCORE', OPEN, session)
  row[8] = lease_end and integer_text(tonumber(lease_end) - now)
  row[9] = call('ZCARD', holds_key(session)) + call('SCARD', SPACE .. 'locks:' .. session)
  return row
end
