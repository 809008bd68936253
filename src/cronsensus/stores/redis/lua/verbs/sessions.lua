-- needs: sessions
local ended, limit = unpack(args, 1, 2)
local found = {}
if ended then
  found = call('ZREVRANGE', SPACE .. 'sessions', 0, limit - 1)
else
  for _, session in ipairs(call('ZRANGE', OPEN, 0, -1)) do
    found[#found + 1] = session
  end
  local numbers = {}
  for _, session in ipairs(found) do
    numbers[session] = tonumber(read(session_key(session), 'number').number) or 0
  end
  table.sort(found, function(one, other)
    return numbers[one] > numbers[other]
  end)
end
local rows = {}
for index = 1, math.min(limit, #found) do
  local row = try(session_row, found[index])
  if row then
    row[10] = read(session_key(found[index]), 'declares').declares
  end
  rows[index] = row or { found[index] }
end
return answer(rows)
