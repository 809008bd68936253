-- Write definitions that Python computed from what it read a moment ago (`at`). If that has changed since, write nothing and
-- refuse with AGAIN: the caller reads again.
--
-- The computation rests on these values, which are compared in the same step as the writes: a new name is free; revision
-- and watermark of a changed, moved or retired job (every change of eras and every end of a job makes a new revision, and
-- a fired plan moves the watermark); which releases are alive; and for a complete declaration, that no definition changed
-- at all. So of two nodes that define the same at the same instant, the second reads again.
-- needs: releases retiring
local MOST_AGE = 10000000

local at, generation, release, newer_release_lives, other_release_lives = unpack(args, 1, 5)
local created, changed, retired, due_moved, entries = unpack(args, 6, 10)

local function is_unchanged(job, revision, watermark)
  local row = read(job_key(job), 'revision', 'watermark')
  return comparable_text(row.revision) == revision and comparable_text(row.watermark) == watermark
end

local function is_still_valid()
  local age = now - tonumber(at)
  if age < 0 or age > MOST_AGE then
    return false
  end
  if generation and generation ~= (call('HGET', META, 'definitions') or '0') then
    return false
  end
  for _, entry in ipairs(created) do
    if call('HEXISTS', SPACE .. 'names', entry[1]) == 1 then
      return false
    end
  end
  for _, entries_of_kind in ipairs({ changed, retired, due_moved }) do
    for _, entry in ipairs(entries_of_kind) do
      if not is_unchanged(entry[1], entry[2], entry[3]) then
        return false
      end
    end
  end
  if release then
    local newer_now, other_now = others_live(release)
    return newer_now == newer_release_lives and other_now == other_release_lives
  end
  return true
end

if not is_still_valid() then
  return refuse('AGAIN')
end
if release then
  ensure_identity()
  call('HSET', META, 'schema', SCHEMA)
  record_release(release)
end
if #created + #changed + #retired > 0 then
  call('HINCRBY', META, 'definitions', 1)
end

-- Write the fields of a new or changed job, its new era and its next due time, and index it.
local function write_job(job, name, fields, era, next_due)
  local key = job_key(job)
  call('HDEL', key, 'retired_at', 'waiting_until', 'concurrency', 'manual', 'elsewhere', 'dependent', 'grace')
  call('ZREM', PENDING_OF_RETIRED, job)
  call('HSET', key, unpack(fields))
  call('RPUSH', job_part_key(job, 'eras'), era)
  call('ZREM', SPACE .. 'retired', name)
  call('ZADD', SPACE .. 'jobs', 0, name)
  local row = read(key, 'source', 'paused_at', 'keep', 'dependent')
  if row.source == 'code' then
    call('ZADD', SPACE .. 'code', 0, name)
  else
    call('ZREM', SPACE .. 'code', name)
  end
  if row.dependent then
    call('ZADD', SPACE .. 'dependent', 0, name)
  else
    call('ZREM', SPACE .. 'dependent', name)
  end
  if row.paused_at then
    call('SADD', SPACE .. 'paused', job)
  end
  set_due(job, next_due, not row.paused_at)
  schedule_pruning(job, row.keep)
end

for _, entry in ipairs(created) do
  local name, fields, era, next_due = unpack(entry, 1, 4)
  local job = next_number('job', '%09.0f')
  call('HSET', SPACE .. 'names', name, job)
  call('HSET', job_key(job), 'created', at)
  write_job(job, name, fields, era, next_due)
end
for _, entry in ipairs(changed) do
  local job, _, _, name, fields, era, next_due = unpack(entry, 1, 7)
  try(write_job, job, name, fields, era, next_due)
end
for _, entry in ipairs(retired) do
  try(retire, at, entry)
end
for _, entry in ipairs(due_moved) do
  local job, revision, watermark, _, next_due = unpack(entry, 1, 5)
  set_due(job, next_due, not read(job_key(job), 'paused_at').paused_at)
end
for _, entry in ipairs(entries) do
  record(unpack(entry, 1, 5))
end
return answer(true)
