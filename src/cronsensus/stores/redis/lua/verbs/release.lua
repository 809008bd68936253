-- Claims that had begun (`why` is given) go the way of a takeover; of the others the attempt is given back too.
-- needs: ending
even_if_full()
local answers = {}
local claims, why, crashed = unpack(args, 1, 3)
for index, claim in ipairs(claims) do
  local id, token, session = claim[1], claim[2], claim[3]
  local row = occurrence(id)
  local current = is_current(row, token, session)
  if current and why then
    take_over(id, row.session, why, crashed, row)
  elseif current then
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
