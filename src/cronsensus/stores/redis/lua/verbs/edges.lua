-- The definitions of downstream jobs that are not retired, by name, up to a limit.
local after, limit = unpack(args, 1, 2)
local definitions = {}
local page = call('ZRANGEBYLEX', SPACE .. 'dependent', after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, limit)
for index, name in ipairs(page) do
  local job = call('HGET', SPACE .. 'names', name)
  definitions[index] = { name, job and call('HGET', job_key(job), 'spec') or false }
end
return answer(definitions)
