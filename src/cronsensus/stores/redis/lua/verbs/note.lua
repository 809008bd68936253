-- needs: occurrences
local answers = {}
for index, note in ipairs(args[1]) do
  local id, token, progress, lines = unpack(note, 1, 4)
  local row = read(occurrence_key(id), 'state', 'token', 'attempt')
  local current = row.state == 'running' and row.token == token
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
