-- End dead sessions, until some hundred runs are cut off; the second answer is whether there are more.
-- needs: ending
local ENOUGH = 500

allow_writes_when_full()
local dead = {}
for _, session in ipairs(call('ZRANGEBYSCORE', OPEN, '-inf', NOW)) do
  dead[#dead + 1] = { session, 'lease ran out' }
end
for _, session in ipairs(args[1]) do
  if is_session_alive(session) then
    dead[#dead + 1] = { session, 'process gone' }
  end
end
for _, entry in ipairs(dead) do
  entry.number = tonumber(read(session_key(entry[1]), 'number').number) or 0
end
table.sort(dead, function(entry, other)
  return entry.number < other.number
end)

local taken = {}
for index, entry in ipairs(dead) do
  if call('ZSCORE', OPEN, entry[1]) then -- named twice it ends once
    for _, run in ipairs(try(end_session, entry[1], 'dead', entry[2], true) or {}) do
      taken[#taken + 1] = run
    end
  end
  if #taken >= ENOUGH and index < #dead then
    return answer({ taken, true })
  end
end
return answer({ taken, false })
