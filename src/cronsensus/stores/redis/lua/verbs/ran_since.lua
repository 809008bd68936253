-- The occurrences that ended since a moment; on the first page (without `after`) also those that run. Reads a bounded
-- number of ids and returns where it stopped, so that no reader keeps others waiting.
-- needs: glances views
local since, limit, after, most = unpack(args, 1, 4)
local rows, names_seen, seen = {}, {}, {}

local function add(row)
  if not seen[row[1]] then
    seen[row[1]] = true
    names_seen[#names_seen + 1] = { row[1], name_of(row[1]) }
  end
  rows[#rows + 1] = row
end

if not after then
  for _, row in ipairs(glances_of(call('ZREVRANGE', SPACE .. 'running', 0, limit - 1))) do
    if row[2] == 'running' then
      try(add, row)
    end
  end
end
local page = call('ZREVRANGEBYSCORE', SPACE .. 'ids', after and '(' .. after or '+inf', '-inf', 'LIMIT', 0, most)
for _, row in ipairs(glances_of(page)) do
  local ended = row[11] and tonumber(row[11])
  if ended and ended >= tonumber(since) then
    try(add, row)
  end
end
return answer({ rows, names_seen, #page == most and page[#page] })
