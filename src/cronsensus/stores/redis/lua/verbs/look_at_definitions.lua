-- The definitions under some names, for Python to compare and to plan on: Lua knows no triggers. The counts of definitions
-- and of living jobs of code show whether several reads saw the same state, and whether there are more than declared.
-- needs: releases
-- A definition itself is returned if its digest differs from the one that is given with the name.
local release, names, digests = unpack(args, 1, 3)
local rows = {}
for index, name in ipairs(names) do
  local job = call('HGET', SPACE .. 'names', name)
  if job then
    local fields = call(
      'HMGET', job_key(job), 'digest', 'revision', 'watermark', 'eras', 'last_since', 'retired_at', 'source', 'waiting_until',
      'next_due'
    )
    fields[2], fields[3] = comparable_text(fields[2]), comparable_text(fields[3])
    local differs = digests[index] and digests[index] ~= fields[1]
    fields[10] = differs and call('HGET', job_key(job), 'spec') or false
    rows[index] = { job, unpack(fields, 1, 10) }
  else
    rows[index] = false
  end
end
return answer({
  NOW, call('HGET', META, 'definitions') or '0', call('HEXISTS', RELEASES, release) == 1, { others_live(release) }, rows,
  call('ZCARD', SPACE .. 'code'),
})
