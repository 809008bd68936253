-- needs: jobs
local rows = {}
for _, job in ipairs(call('ZRANGEBYSCORE', SPACE .. 'due', '-inf', args[1], 'LIMIT', 0, args[2])) do
  rows[#rows + 1] = try(state_row, job) or { job }
end
return answer(rows)
