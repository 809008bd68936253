-- Ids and times of one job's ranges sort alike, so the first that may touch `since` is found by its last time.
local name, since, upto, after, limit = unpack(args, 1, 5)
local job = call('HGET', SPACE .. 'names', name)
if not job then
  return answer({})
end
local start = '(' .. after
if since then
  local first = call('ZRANGEBYSCORE', job_part_key(job, 'lasts'), since, '+inf', 'LIMIT', 0, 1)[1]
  if not first then
    return answer({})
  end
  if tonumber(first) > tonumber(after) then
    start = first
  end
end
local ranges = {}
local rows = call('ZRANGEBYSCORE', job_part_key(job, 'ranges'), start, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
for index = 1, #rows, 2 do
  local text = rows[index]
  local first = string.match(text, '^%d+ %-?%d+ (%-?%d+) ')
  if upto and first and tonumber(first) > tonumber(upto) then
    break
  end
  ranges[#ranges + 1] = { rows[index + 1], text }
end
return answer(ranges)
