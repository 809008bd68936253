-- needs: occurrences
local answers = {}
for index, claim in ipairs(args[1]) do
  local id, token = claim[1], claim[2]
  local row = occurrence(id)
  local current = row.state == 'running' and row.token == token
  if current then
    record_run(id, row, 'released')
    row.attempt = whole(row.attempt - 1)
    if row.cancel then
      close(id, row, 'cancelled', { 'reason', row.cancel, 'attempt', row.attempt })
    else
      put_back(id, row, due_again(row), { 'attempt', row.attempt })
    end
  end
  answers[index] = current
end
return answer(answers)
