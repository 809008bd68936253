-- The occurrences that failed, or were missed or cancelled, since a moment, by time and id.
-- needs: views
local since, after, limit = unpack(args, 1, 3)
local rows, names_seen = {}, {}

local function add(id)
  local row = occurrence_row(id)
  if row[1] then
    rows[#rows + 1] = row
    names_seen[#names_seen + 1] = { row[1], name_of(row[1]) }
  end
end

-- Those of one moment come by id; all ids have the same number of digits. Those that are left out are not counted.
local skipped = call('ZRANGEBYSCORE', SPACE .. 'unwell', since, since)
local offset = 0
for _, id in ipairs(skipped) do
  if id > after then
    break
  end
  offset = offset + 1
end
for _, id in ipairs(call('ZRANGEBYSCORE', SPACE .. 'unwell', since, '+inf', 'LIMIT', offset, limit)) do
  try(add, id)
end
return answer({ rows, names_seen })
