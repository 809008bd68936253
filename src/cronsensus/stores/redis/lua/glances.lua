-- Occurrences as lists show them: without arguments, result and error, which may be long.

local function glances_of(ids)
  local rows = {}
  for _, id in ipairs(ids) do
    try(function()
      local row = call(
        'HMGET', SPACE .. 'occurrence:' .. id,
        'job', 'state', 'nominal', 'due', 'crashes', 'failures', 'node', 'reason', 'created', 'started', 'finished',
        'parent', 'listed'
      )
      if row[1] then
        row[12], row[13], row[14] = id, row[12], row[13]
        rows[#rows + 1] = row
      end
    end)
  end
  return rows
end
