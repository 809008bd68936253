-- Up to `limit` each of those that live and the retired ones. They are merged in Python, because Lua compares text in
-- the order of the server's locale.
-- needs: views
local after, limit, retired = unpack(args, 1, 3)
local from = after == '' and '-' or '(' .. after
local names = call('ZRANGEBYLEX', SPACE .. 'jobs', from, '+', 'LIMIT', 0, limit)
if retired then
  for _, name in ipairs(call('ZRANGEBYLEX', SPACE .. 'retired', from, '+', 'LIMIT', 0, limit)) do
    names[#names + 1] = name
  end
end
local rows = {}
for index, name in ipairs(names) do
  rows[index] = { name, try(job_row, call('HGET', SPACE .. 'names', name)) or {} }
end
return answer(rows)
