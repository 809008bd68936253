-- Changes of indexes are gathered and sent with many members in one command: a claim of two hundred sends thirty commands
-- and not three thousand. Rows are written at once. A function that reads an index which this script has changed sends first.

local MOST_WORDS = 1000 -- of one command; even, because some come in pairs
local gathered, commands, scheduled_actions, is_scheduled = {}, {}, {}, {}

-- Add one or two words to a command on a key, which is sent later.
local function gather(command, key, word, second_word)
  if not word then
    error('bad argument to ' .. command, 0)
  end
  local of_key = gathered[key]
  if not of_key then
    of_key = {}
    gathered[key] = of_key
  end
  local command_words = of_key[command]
  if not command_words then
    command_words = { command, key }
    of_key[command] = command_words
    commands[#commands + 1] = command_words
  end
  command_words[#command_words + 1] = word
  if second_word then
    command_words[#command_words + 1] = second_word
  end
end

-- Call a function after the gathered changes are sent, once for each name.
local function after_send(name, action)
  if not is_scheduled[name] then
    is_scheduled[name] = true
    scheduled_actions[#scheduled_actions + 1] = action
  end
end

local OF_ONE_JOB, OF_ONE_BATCH = SPACE .. 'job:', SPACE .. 'items:'
local function call_directly(action, ...)
  return action(...)
end

send = function()
  for _, command_words in ipairs(commands) do
    for start = 3, #command_words, MOST_WORDS do
      -- A damaged index of a job or a batch stops only that one.
      local key = command_words[2]
      local is_isolated = string.find(key, OF_ONE_JOB, 1, true) == 1 or string.find(key, OF_ONE_BATCH, 1, true) == 1
      local send_command = is_isolated and try or call_directly
      send_command(call, command_words[1], key, unpack(command_words, start, math.min(start + MOST_WORDS - 1, #command_words)))
    end
  end
  for _, action in ipairs(scheduled_actions) do
    try(action)
  end
  gathered, commands, scheduled_actions, is_scheduled = {}, {}, {}, {}
end

-- The queues of pending occurrences. A level is priority and class in one number; the highest is claimed first
-- (model/claim_order.py). Each level has a line (a queue by due time) for each job and kind, and an index of the heads of its
-- lines. So a claim skips a job in one step if it is at its limit or not for this node, however long its line is.

local LEVELS = SPACE .. 'levels'
local CLASSES = 3
local CLASS = { enqueue = 1, batch = 1, backfill = 2 } -- of an origin; all others are of the first, 0

local function level_of(priority, class)
  return integer_text(CLASSES * (tonumber(priority) or error('not a number', 0)) + CLASSES - 1 - class)
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

local last_heads = {} -- line → its head, as this script last left it

-- Add or remove an entry of a line; the index of heads is updated when changes are sent.
local function change_line(command, level, name, word, second_word)
  local line = line_key(level, name)
  if not is_scheduled[line] then
    local heads = level_key(level)
    local head_before = last_heads[line] or { head_of(line, name) }
    local before, before_due = head_before[1], head_before[2]
    after_send(line, function()
      local head, due = head_of(line, name)
      last_heads[line] = { head, due }
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
  gather(command, line, word, second_word)
end
