-- What every script begins with: its keys, its arguments, the store's clock, and whole numbers as text.
--
-- KEYS[1] names the space: "{prefix:namespace}:meta". All other keys are made from it, so all lie in its hash slot.
-- KEYS[2] never exists. While a Cluster moves the slot, a server that lacks one of the declared keys refuses the script
-- before it begins (TRYAGAIN); without this one it would begin with half of the keys and create the others anew.
-- ARGV[1] are the arguments, packed.
-- ARGV[2] is empty, or a time in microseconds in place of the server's (tests).
-- ARGV[3] is empty, or the time before which the clock cannot be unless it was set back; then nothing is done.
-- ARGV[4] is empty, or what the trail is to say about that, packed; it is written with whatever the script writes.
--
-- Scripts are atomic but not rolled back: each checks everything before its first write. An error of one of our words
-- (LEASELOST, AGAIN, …) is a refusal, and nothing was written.
--
--   meta        hash   schema; the last number given of each kind; `definitions` counts what changed of them; `newest`
--                      is the session that was opened last
--   names       hash   name of a job → its number        jobs, retired, code, dependent   zset   names
--   job:J       hash   a job; job:J:eras, :pauses (lists), :ranges (zset), :lasts (zset: range → its last time)
--   job:J:keys  hash   key → occurrence                  job:J:ids, :nominal (zsets: by id, by nominal time)
--   job:J:serial  zset active ones that overlap is for   job:J:running (hash: → session), :busy (set: serial ones)
--   due         zset   job → next due time, if it fires  prunable (zset: job → when something of it may go), paused (set)
--   occurrence:I  hash an occurrence; attempts:I (list: earlier runs), log:I (list)
--   ids, running, pending (by due time), expiring, state:…   zsets of occurrences
--   items:I:STATE  zset   the items of batch I that are in a state; parked (zset: what is parked)
--   unwell      zset   what failed, or was missed or cancelled, by its end; decided (zset: range and its job, by range)
--   line:P:J:K  zset   pending by due time: level P (priority and class), job J, K is s (overlap is for it) or w
--   level:P     zset   the head of each line, by due time; levels (zset: the levels that have lines)
--   session:S   hash   a session; holds:S (zset: its runs), locks:S (set), functions:S (set)
--   sessions (by number), open (by end of lease), ended (by end), holding (by number)   zsets; guests, turning (sets)
--   releases    hash   release → when it became known
--   lock:P:N    hash   place P of lock N; locks (zset: places), leases (zset: place → end, if it has no session)
--   queue:N     zset   the waiters for lock N; queues (zset: lock → when a waiter last joined)
--   sign:S      channel to which the process of session S listens, so that it is seen to live
--   trail       zset   entries by id; trail:T (zset: ids of a target)

local META = KEYS[1]
local SPACE = string.sub(META, 1, -5)
local SCHEMA = '5'
local LAST = 9007199254740991 -- see LATEST_MICROS in instants.py
local call = redis.call

local schema, last_token, identity, sessions_opened, newest_session, last_occurrence =
  unpack(call('HMGET', META, 'schema', 'token', 'identity', 'session', 'newest', 'occurrence'))
if schema and schema ~= SCHEMA then
  return redis.error_reply('SCHEMA ' .. schema)
end

local args = cmsgpack.unpack(ARGV[1])

-- Lua's own way of writing a number (%.14g) would lose the microseconds.
local function whole(number)
  return string.format('%.0f', number)
end

local function read_clock()
  if ARGV[2] ~= '' then
    return tonumber(ARGV[2])
  end
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local now = read_clock()
local NOW = whole(now)
if ARGV[3] ~= '' and now < tonumber(ARGV[3]) then
  return redis.error_reply('SETBACK ' .. NOW)
end

local function later(wait)
  wait = tonumber(wait) or 0
  if wait ~= wait then -- "nan" is a number to Lua
    wait = 0
  end
  return whole(math.min(now + wait, LAST))
end

-- Numbers of one kind are given once; the text has a fixed length, so that it sorts as the number does.
local function next_number(kind, form)
  return string.format(form, call('HINCRBY', META, kind, 1))
end

local function read(key, ...)
  local names, row = { ... }, {}
  local values = redis.pcall('HMGET', key, ...)
  for index = 1, #names do
    row[names[index]] = not values.err and values[index]
  end
  return row
end

-- Do something with what concerns one thing only; nil if what is kept of it is not as any version wrote it (by hand, by
-- a disk). Everything else goes on.
local OF_VALUES = {
  'WRONGTYPE', 'attempt to', 'bad argument', 'Expected', 'not an integer', 'not a valid float', 'not a float', 'not a number',
  'command arguments must be',
}

local function try(act, ...)
  local fine, found = pcall(act, ...)
  if fine then
    return found or nil
  end
  local said = type(found) == 'table' and found.err or tostring(found)
  for _, words in ipairs(OF_VALUES) do
    if string.find(said, words, 1, true) then
      return nil
    end
  end
  error(found, 0) -- of the server: no memory, no master
end

-- A score as a whole number that is an instant.
local function at_score(score)
  return whole(math.max(-LAST, math.min(tonumber(score), LAST)))
end

local function job_key(job)
  return SPACE .. 'job:' .. job
end

local function of_job(job, what)
  return SPACE .. 'job:' .. job .. ':' .. what
end

-- A server whose memory is used up lets a script go on writing that has written something allowed before. What frees
-- memory, and what keeps a run from being taken for dead or records its end, begins so.
local function even_if_full()
  call('DEL', SPACE .. 'never')
end

-- Whether the server's memory is used up, so that it would refuse a script what it has not begun with. RPUSHX adds to a
-- list that is there, and this one never is. To be asked before the first write.
local function is_full()
  local said = redis.pcall('RPUSHX', SPACE .. 'never', '')
  return type(said) == 'table' and said.err and string.find(said.err, 'OOM', 1, true)
end

-- Write what a full server is to take too, without a command more on one that is not: its refusal comes before anything
-- is written, and then all of it is done anew. What `act` has gathered until then is sent twice in one command, which
-- changes nothing.
local function write_even_if_full(act)
  local fine, said = pcall(act)
  if fine then
    return
  end
  if not string.find(type(said) == 'table' and said.err or tostring(said), 'OOM', 1, true) then
    error(said, 0)
  end
  even_if_full()
  act()
end

local function refuse(word)
  return redis.error_reply(word)
end

-- Record an act in the audit trail: by which operator, on which target, and why. Details are JSON text.
local function record(by, action, target, why, details)
  local id = next_number('trail', '%014.0f')
  call('ZADD', SPACE .. 'trail', id, cjson.encode({ id, NOW, by, action, target, why, details }))
  call('ZADD', SPACE .. 'trail:' .. target, id, id)
end

-- Send what was gathered, see indexes.lua.
local send = function() end

local function answer(value)
  send()
  if ARGV[4] ~= '' then
    record(unpack(cmsgpack.unpack(ARGV[4]), 1, 5))
  end
  return cmsgpack.pack({ NOW, value })
end
