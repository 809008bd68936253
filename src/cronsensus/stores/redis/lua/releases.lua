-- Releases, in the order in which they became known.
-- needs: sessions

local RELEASES = SPACE .. 'releases'

-- Return a field so that Python can send it back to be compared. Text that is not plain ASCII would change on the way, so it
-- becomes `true`.
local function comparable_text(value)
  return value and (string.match(value, '[^ -~]') and true or value)
end

-- Add a release if it is unknown. Its value is the time, or more: later than that of every other release, even if the clock
-- was set back.
local function record_release(release)
  if call('HEXISTS', RELEASES, release) == 1 then
    return
  end
  local place = now
  for _, other in ipairs(call('HVALS', RELEASES)) do
    place = math.max(place, (tonumber(other) or 0) + 1)
  end
  call('HSET', RELEASES, release, integer_text(place))
end

-- Whether a session of a release that became known later is alive, and whether one of any other release is.
local function others_live(release)
  local place = tonumber(call('HGET', RELEASES, release) or math.huge)
  local later_one, other_one = false, false
  for _, session in ipairs(call('ZRANGEBYSCORE', OPEN, '(' .. NOW, '+inf')) do
    local theirs = call('HGET', session_key(session), 'release')
    if theirs then -- a session that is no node has none
      later_one = later_one or (tonumber(call('HGET', RELEASES, theirs)) or 0) > place
      other_one = other_one or theirs ~= release
    end
  end
  return later_one, other_one
end
