-- Delete a final occurrence: its row, its attempts, its log, and its entries in every index.

local FOUND_BY_STATE = { failed = true, cancelled = true, skipped = true, missed = true }

-- `row` has key, nominal, state and parent.
local function delete_final(job, id, row)
  call('DEL', SPACE .. 'occurrence:' .. id, SPACE .. 'attempts:' .. id, SPACE .. 'log:' .. id)
  call('HDEL', job_part_key(job, 'keys'), row.key)
  call('ZREM', SPACE .. 'ids', id)
  call('ZREM', job_part_key(job, 'ids'), id)
  if row.nominal then
    call('ZREM', job_part_key(job, 'nominal'), id)
  end
  if FOUND_BY_STATE[row.state] then
    call('ZREM', SPACE .. 'state:' .. row.state, id)
    call('ZREM', SPACE .. 'unwell', id)
  end
  if row.parent then
    call('ZREM', SPACE .. 'items:' .. row.parent .. ':' .. row.state, id)
  end
end
