-- Write definitions that Python computed from the state a moment ago (`at`), if that has not changed; else AGAIN.
--
-- The computation rests on these values, which are compared in the same step as the writes: a new name is free; revision
-- and watermark of a changed, moved or retired job (every change of eras and every end of a job makes a new revision, and
-- a fired plan moves the watermark); which releases are alive; and for a complete declaration, that no definition changed
-- at all. So of two nodes that define the same at the same instant, the second looks again.
-- needs: releases retiring
local MOST_AGE = 10000000

local at, generation, release, newer_release_lives, other_release_lives, created, changed, retired, moved, entries = unpack(args, 1, 10)

local function stands(job, revision, watermark)
  local row = read(job_key(job), 'revision', 'watermark')
  return plain(row.revision) == revision and plain(row.watermark) == watermark
end

local function still_holds()
  local age = now - tonumber(at)
  if age < 0 or age > MOST_AGE then
    return false
  end
  if generation and generation ~= (call('HGET', META, 'definitions') or '0') then
    return false
  end
  for _, one in ipairs(created) do
    if call('HEXISTS', SPACE .. 'names', one[1]) == 1 then
      return false
    end
  end
  for _, some in ipairs({ changed, retired, moved }) do
    for _, one in ipairs(some) do
      if not stands(one[1], one[2], one[3]) then
        return false
      end
    end
  end
  if release then
    local later_now, other_now = others_live(release)
    return later_now == newer_release_lives and other_now == other_release_lives
  end
  return true
end

if not still_holds() then
  return refuse('AGAIN')
end
if release then
  have_identity()
  call('HSET', META, 'schema', SCHEMA)
  know_release(release)
end
if #created + #changed + #retired > 0 then
  call('HINCRBY', META, 'definitions', 1)
end

-- Fields, the new era, the next due time.
local function write(job, name, fields, era, next_due)
  local key = job_key(job)
  call('HDEL', key, 'retired_at', 'waiting_until', 'concurrency', 'manual', 'elsewhere', 'dependent', 'grace')
  call('ZREM', WAITING, job)
  call('HSET', key, unpack(fields))
  call('RPUSH', of_job(job, 'eras'), era)
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
  look_for_pruning(job, row.keep)
end

for _, one in ipairs(created) do
  local name, fields, era, next_due = unpack(one, 1, 4)
  local job = next_number('job', '%09.0f')
  call('HSET', SPACE .. 'names', name, job)
  call('HSET', job_key(job), 'created', at)
  write(job, name, fields, era, next_due)
end
for _, one in ipairs(changed) do
  local job, _, _, name, fields, era, next_due = unpack(one, 1, 7)
  try(write, job, name, fields, era, next_due)
end
for _, one in ipairs(retired) do
  try(retire, at, one)
end
for _, one in ipairs(moved) do
  local job, revision, watermark, _, next_due = unpack(one, 1, 5)
  set_due(job, next_due, not read(job_key(job), 'paused_at').paused_at)
end
for _, entry in ipairs(entries) do
  record(unpack(entry, 1, 5))
end
return answer(true)
