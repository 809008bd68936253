-- The states of batches, and how many of their items are in each state; the server counts them.
-- needs: occurrences
local COUNTED = { 'pending', 'running', 'succeeded', 'failed', 'cancelled', 'skipped' }
local KNOWN = { missed = true }
for _, state in ipairs(COUNTED) do
  KNOWN[state] = true
end
local MOST_MENDED = 1000

-- A set may have an entry that its row contradicts (see occurrences.lua), and a batch would wait for it for ever. So the
-- first entry of a set is compared with its row, and moved to the right set, until one is right. Items are claimed and end
-- nearly in their order, so a wrong entry becomes the first. This verb is a read: if it may not write (a full server, a
-- user who only reads), the count stays too high, and nothing else happens.
local function remove_wrong_entries(batch, state)
  local set = items_key(batch, state)
  for _ = 1, MOST_MENDED do
    local id = call('ZRANGE', set, 0, 0)[1]
    local actual_state = id and read(occurrence_key(id), 'state').state
    if not id or actual_state == state then
      return
    end
    if actual_state and KNOWN[actual_state] and type(redis.pcall('ZADD', items_key(batch, actual_state), id, id)) == 'table' then
      return
    end
    if type(redis.pcall('ZREM', set, id)) == 'table' then
      return
    end
  end
end

local function counts_of(batch)
  local row = read(occurrence_key(batch), 'state', 'listed')
  local counts = { KNOWN[row.state] and row.state or false, string.match(row.listed or '', '^%d+$') or false }
  for _, state in ipairs({ 'pending', 'running' }) do
    remove_wrong_entries(batch, state)
  end
  for _, state in ipairs(COUNTED) do
    counts[#counts + 1] = call('ZCARD', items_key(batch, state))
  end
  return counts
end

local answers = {}
for index, batch in ipairs(args[1]) do
  answers[index] = try(counts_of, batch) or false
end
return answer(answers)
