-- needs: occurrences
local answers = {}
for index, note in ipairs(args[1]) do
  local id, token, progress, lines, session = unpack(note, 1, 5)
  local row = read(occurrence_key(id), 'state', 'token', 'session', 'attempt')
  local current = is_current(row, token, session)
  if current then
    if progress then
      call('HSET', occurrence_key(id), 'progress', progress)
    end
    for _, line in ipairs(lines) do
      call('RPUSH', SPACE .. 'log:' .. id, row.attempt .. ' ' .. line)
    end
  end
  answers[index] = current
end
return answer(answers)
