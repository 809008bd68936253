-- Changes of indexes are gathered and sent with many members in one command: a claim of two hundred sends thirty commands
-- and not three thousand. Rows are written at once. A function that reads an index which this script has changed sends first.

local MOST_WORDS = 1000 -- of one command; even, because some come in pairs
local gathered, commands, acts, waiting = {}, {}, {}, {}

-- Add one or two words to a command on a key.
local function gather(command, key, one, other)
  if not one then
    error('bad argument to ' .. command, 0)
  end
  local of_key = gathered[key]
  if not of_key then
    of_key = {}
    gathered[key] = of_key
  end
  local words = of_key[command]
  if not words then
    words = { command, key }
    of_key[command] = words
    commands[#commands + 1] = words
  end
  words[#words + 1] = one
  if other then
    words[#words + 1] = other
  end
end

-- Do something once, after the gathered changes are sent.
local function afterwards(name, act)
  if not waiting[name] then
    waiting[name] = true
    acts[#acts + 1] = act
  end
end

local OF_ONE_JOB, OF_ONE_BATCH = SPACE .. 'job:', SPACE .. 'items:'
local function run(act, ...)
  return act(...)
end

send = function()
  for _, words in ipairs(commands) do
    for start = 3, #words, MOST_WORDS do
      -- A damaged index of a job or a batch stops only that one.
      local alone = string.find(words[2], OF_ONE_JOB, 1, true) == 1 or string.find(words[2], OF_ONE_BATCH, 1, true) == 1
      local act = alone and try or run
      act(call, words[1], words[2], unpack(words, start, math.min(start + MOST_WORDS - 1, #words)))
    end
  end
  for _, act in ipairs(acts) do
    try(act)
  end
  gathered, commands, acts, waiting = {}, {}, {}, {}
end

-- Where pending occurrences stand: one line for each level, job and kind, and for each level the heads of its lines. A
-- level is priority and class in one number, the higher is claimed first (model/claim_order.py). So a claim skips a
-- job that is full or not for its node in one step, however long its queue is.

local LEVELS = SPACE .. 'levels'
local CLASSES = 3
local CLASS = { enqueue = 1, batch = 1, backfill = 2 } -- of an origin; all others are of the first, 0

local function level_of(priority, class)
  return whole(CLASSES * (tonumber(priority) or error('not a number', 0)) + CLASSES - 1 - class)
end

local function priority_of(level)
  return math.floor((tonumber(level) or 0) / CLASSES)
end

local function line_key(level, name)
  return SPACE .. 'line:' .. level .. ':' .. name
end

local function level_key(level)
  return SPACE .. 'level:' .. level
end

local function head_of(line, name)
  local head = call('ZRANGE', line, 0, 0, 'WITHSCORES')
  return head[1] and head[1] .. ':' .. name, head[2]
end

local heads_left = {} -- of lines, by this script

-- Change a line; its head is set right afterwards.
local function change_line(command, level, name, one, other)
  local line = line_key(level, name)
  if not waiting[line] then
    local heads = level_key(level)
    local left = heads_left[line] or { head_of(line, name) }
    local before, before_due = left[1], left[2]
    afterwards(line, function()
      local head, due = head_of(line, name)
      heads_left[line] = { head, due }
      if before and before ~= head then
        call('ZREM', heads, before)
      end
      if head and (head ~= before or due ~= before_due) then
        call('ZADD', heads, due, head)
        call('ZADD', LEVELS, level, level)
      elseif not head and call('EXISTS', heads) == 0 then
        call('ZREM', LEVELS, level)
      end
    end)
  end
  gather(command, line, one, other)
end
