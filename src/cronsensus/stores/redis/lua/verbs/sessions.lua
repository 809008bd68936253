-- Sessions, the newest first: those that are open, or also ended ones.
-- needs: sessions
local ended, limit = unpack(args, 1, 2)
local sessions = {}
if ended then
  sessions = call('ZREVRANGE', SPACE .. 'sessions', 0, limit - 1)
else
  for _, session in ipairs(call('ZRANGE', OPEN, 0, -1)) do
    sessions[#sessions + 1] = session
  end
  local numbers = {}
  for _, session in ipairs(sessions) do
    numbers[session] = tonumber(read(session_key(session), 'number').number) or 0
  end
  table.sort(sessions, function(session, other)
    return numbers[session] > numbers[other]
  end)
end
local rows = {}
for index = 1, math.min(limit, #sessions) do
  local row = try(session_row, sessions[index])
  if row then
    row[10] = read(session_key(sessions[index]), 'declares').declares
  end
  rows[index] = row or { sessions[index] }
end
return answer(rows)
