-- The tokens of runs and of locks.

-- Tokens only grow, also on a promoted replica that lacks the last writes of the master before it: there the clock has
-- moved on past the last one that was given.
-- Further fields and values are written with it.
local function next_tokens(count, ...)
  local first = math.max(tonumber(last_token or 0) + 1, now)
  last_token = integer_text(first + count - 1)
  call('HSET', META, 'token', last_token, ...)
  return first
end
