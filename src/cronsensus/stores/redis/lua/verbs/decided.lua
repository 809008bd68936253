-- Verdict ranges of all jobs by their numbers; or the last one.
-- needs: views
local after, limit = unpack(args, 1, 2)
local DECIDED = SPACE .. 'decided'
local ranges, page = {}, nil
if after then
  page = call('ZRANGEBYSCORE', DECIDED, '(' .. after, '+inf', 'LIMIT', 0, limit)
else
  page = call('ZREVRANGE', DECIDED, 0, 0)
end
for _, text in ipairs(page) do
  local id, job = string.match(text, '^(%S+) (%S+)$')
  local range = job and call('ZRANGEBYSCORE', job_part_key(job, 'ranges'), id, id)[1]
  if range then
    ranges[#ranges + 1] = { range, try(name_of, job) or false }
  end
end
return answer(ranges)
