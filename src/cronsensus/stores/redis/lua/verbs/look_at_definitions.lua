-- What stands under some names, for Python to compare and to plan on: Lua knows no triggers. The counts of definitions
-- and of living jobs of code tell whether pieces of one look belong together, and whether there are more than declared.
-- needs: releases
local release, names = unpack(args, 1, 2)
local rows = {}
for index, name in ipairs(names) do
  local job = call('HGET', SPACE .. 'names', name)
  if job then
    local fields = call(
      'HMGET', job_key(job), 'digest', 'revision', 'watermark', 'eras', 'last_since', 'retired_at', 'source', 'waiting_until',
      'next_due'
    )
    fields[2], fields[3] = plain(fields[2]), plain(fields[3])
    rows[index] = { job, unpack(fields) }
  else
    rows[index] = false
  end
end
return answer({
  NOW, call('HGET', META, 'definitions') or '0', call('HEXISTS', RELEASES, release) == 1, { others_live(release) }, rows,
  call('ZCARD', SPACE .. 'code'),
})
