-- Rows as reads return them.

local function job_row(job)
  local row = call(
    'HMGET', job_key(job),
    'spec', 'revision', 'watermark', 'horizon', 'next_due', 'paused_at', 'paused_by', 'paused_why', 'retired_at',
    'created', 'overlap', 'waiting_until'
  )
  row[11] = row[11] == 'allow' and 0 or call('ZCARD', job_part_key(job, 'serial'))
  row[13] = job
  return row
end

local function occurrence_row(id)
  local row = call(
    'HMGET', SPACE .. 'occurrence:' .. id,
    'job', 'key', 'origin', 'state', 'nominal', 'due', 'priority', 'attempt', 'crashes', 'failures', 'token', 'session',
    'node', 'reason', 'result', 'error', 'progress', 'cancel', 'retry_of', 'payload', 'created', 'started', 'finished',
    'fingerprint', 'parent', 'listed', 'retried_as', 'parked', 'note', 'reserved'
  )
  row[31] = id
  return row
end

-- The names of the jobs that rows are of, by number.
local names = {}
local function name_of(job)
  names[job] = names[job] or call('HGET', job_key(job), 'name')
  return names[job]
end
