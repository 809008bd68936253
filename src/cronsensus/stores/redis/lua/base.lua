-- The beginning of every script: its keys, its arguments, the store's clock, and whole numbers as text.
--
-- KEYS[1] is the namespace's key: "{prefix:namespace}:meta". All other keys are made from it, so all lie in its hash slot.
-- KEYS[2] never exists. While a Cluster moves the slot, a server that lacks one of the declared keys refuses the script
-- before it starts (TRYAGAIN); without this key it would start with half of the keys and create the others anew.
-- ARGV[1] are the arguments, packed.
-- ARGV[2] is empty, or a time in microseconds in place of the server's (tests).
-- ARGV[3] is empty, or the time before which the clock cannot be unless it was set back; then nothing is done.
-- ARGV[4] is empty, or an entry for the trail that the clock was set back, packed; it is written with the script's writes.
--
-- Scripts are atomic but not rolled back: each checks everything before its first write. An error with one of our codes
-- (LEASELOST, AGAIN, …) is a refusal, and nothing was written.
--
--   meta        hash   schema; the last number given of each kind; `definitions` counts their changes; `newest`
--                      is the session that was opened last
--   names       hash   name of a job → its number        jobs, retired, code, dependent   zset   names
--   job:J       hash   a job; job:J:eras, :pauses (lists), :ranges (zset), :lasts (zset: range → its last time)
--   job:J:keys  hash   key → occurrence                  job:J:ids, :nominal (zsets: by id, by nominal time)
--   job:J:serial  zset active ones subject to overlap    job:J:running (hash: → session), :busy (set: serial ones)
--   due         zset   job → next due time, if it fires  prunable (zset: job → when it has rows to prune), paused (set)
--   occurrence:I  hash an occurrence; attempts:I (list: earlier runs), log:I (list)
--   ids, running, pending (by due time), expiring, state:…   zsets of occurrences
--   items:I:STATE  zset   the items of batch I that are in a state; parked (zset: parked occurrences)
--   unwell      zset   failed, missed or cancelled occurrences, by end; decided (zset: range and its job, by range)
--   line:P:J:K  zset   pending by due time: level P (priority and class), job J, K is s (subject to overlap) or w
--   level:P     zset   the head of each line, by due time; levels (zset: the levels that have lines)
--   session:S   hash   a session; holds:S (zset: its runs), locks:S (set), functions:S (set)
--   sessions (by number), open (by end of lease), ended (by end), holding (by number)   zsets; guests, turning (sets)
--   releases    hash   release → when it became known
--   lock:P:N    hash   place P of lock N; locks (zset: places), leases (zset: place → end, if it has no session)
--   queue:N     zset   the waiters for lock N; queues (zset: lock → when a waiter last joined)
--   sign:S      channel on which the process of session S listens, as its sign of life
--   trail       zset   entries by id; trail:T (zset: ids of a target)

local META = KEYS[1]
local SPACE = string.sub(META, 1, -5)
local SCHEMA = '5'
local LATEST_TIME = 9007199254740991 -- see LATEST_MICROS in instants.py
local call = redis.call

local schema, last_token, identity, sessions_opened, newest_session, last_occurrence =
  unpack(call('HMGET', META, 'schema', 'token', 'identity', 'session', 'newest', 'occurrence'))
if schema and schema ~= SCHEMA then
  return redis.error_reply('SCHEMA ' .. schema)
end

local args = cmsgpack.unpack(ARGV[1])

-- Return a number without fraction as text. Lua's own number format (%.14g) would lose the microseconds.
local function integer_text(number)
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
local NOW = integer_text(now) -- as keys and values have it
if ARGV[3] ~= '' and now < tonumber(ARGV[3]) then
  return redis.error_reply('SETBACK ' .. NOW)
end

-- Return the instant so many microseconds from now.
local function now_plus(wait)
  wait = tonumber(wait) or 0
  if wait ~= wait then -- "nan" is a number to Lua
    wait = 0
  end
  return integer_text(math.min(now + wait, LATEST_TIME))
end

-- Return the next number of a kind. Its text has a fixed length, so that texts sort like the numbers.
local function next_number(kind, form)
  return string.format(form, call('HINCRBY', META, kind, 1))
end

-- Read fields of a hash into a table by name; a field that is missing is false.
local function read(key, ...)
  local names, row = { ... }, {}
  local values = redis.pcall('HMGET', key, ...)
  for index = 1, #names do
    row[names[index]] = not values.err and values[index]
  end
  return row
end

-- Call a function that handles a single job, occurrence, session or lock. Returns nil if the stored values of that one are
-- damaged (an edit by hand, a broken disk), so that the script goes on with the others.
local DAMAGED_VALUE_ERRORS = {
  'WRONGTYPE', 'attempt to', 'bad argument', 'Expected', 'not an integer', 'not a valid float', 'not a float', 'not a number',
  'command arguments must be',
}

local function try(action, ...)
  local ok, found = pcall(action, ...)
  if ok then
    return found or nil
  end
  local reply = type(found) == 'table' and found.err or tostring(found)
  for _, error_text in ipairs(DAMAGED_VALUE_ERRORS) do
    if string.find(reply, error_text, 1, true) then
      return nil
    end
  end
  error(found, 0) -- an error of the server: no memory, no master
end

-- Return a score of an index as the text of an instant.
local function at_score(score)
  return integer_text(math.max(-LATEST_TIME, math.min(tonumber(score), LATEST_TIME)))
end

local function job_key(job)
  return SPACE .. 'job:' .. job
end

-- Return the key of a list or an index that belongs to a job, such as job:J:eras.
local function job_part_key(job, part)
  return SPACE .. 'job:' .. job .. ':' .. part
end

-- A server without free memory accepts all writes of a script after a DEL, which it always accepts. Scripts that free memory,
-- renew a session or record an end begin with this.
local function allow_writes_when_full()
  call('DEL', SPACE .. 'never')
end

-- Whether the server has no free memory, so that it would refuse a script's first write. RPUSHX adds only to an existing
-- list, and this one never exists. To be called before the first write.
local function is_full()
  local reply = redis.pcall('RPUSHX', SPACE .. 'never', '')
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'OOM', 1, true)
end

-- Make writes that must succeed on a full server, too. Others pay no extra command for that: a full server refuses the
-- first write, so nothing was written, and `action` is repeated. Changes that it had gathered are then sent twice in one
-- command, without effect.
local function write_even_if_full(action)
  local ok, reply = pcall(action)
  if ok then
    return
  end
  if not string.find(type(reply) == 'table' and reply.err or tostring(reply), 'OOM', 1, true) then
    error(reply, 0)
  end
  allow_writes_when_full()
  action()
end

local function refuse(word)
  return redis.error_reply(word)
end

-- Write an entry of the audit trail: what an operator did, to which target, and why. Details are JSON text.
local function record(by, action, target, why, details)
  local id = next_number('trail', '%014.0f')
  call('ZADD', SPACE .. 'trail', id, cjson.encode({ id, NOW, by, action, target, why, details }))
  call('ZADD', SPACE .. 'trail:' .. target, id, id)
end

-- Send the gathered changes, see indexes.lua.
local send = function() end

local function answer(value)
  send()
  if ARGV[4] ~= '' then
    record(unpack(cmsgpack.unpack(ARGV[4]), 1, 5))
  end
  return cmsgpack.pack({ NOW, value })
end
