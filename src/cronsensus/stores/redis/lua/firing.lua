-- Carry plans out. A plan is {job, name, revision, watermark seen, active seen, watermark, next due, not before,
-- cancel previous, {{nominal, key, due, expires, parked}, …}, {{last, text of the range without its id}, …}, definition,
-- function of the job if the session declared it}.
-- needs: occurrences jobs

-- Whether everything that the plan rests on is as it was when the plan was made, and its time comes by `til`. Two nodes that
-- fire the same plan run one after the other, and the second finds another watermark.
local function still_holds(plan, til)
  local job, name, revision, seen, active_seen, watermark, _, not_before = unpack(plan, 1, 8)
  local row = read(
    job_key(job),
    'name', 'revision', 'watermark', 'overlap', 'paused_at', 'retired_at', 'priority', 'payload', 'keep', 'digest',
    'last_since', 'concurrency', 'function', 'spec'
  )
  local definition = plan[12]
  local holds = row.name == name and row.revision == revision and row.watermark == seen
    and (definition == '' or definition == definition_of(row))
    and not row.paused_at and not row.retired_at
    and active(job, row.overlap) == active_seen
    and tonumber(watermark) >= tonumber(seen)
    and (not not_before or tonumber(not_before) <= til)
    and tonumber(row.keep) and tonumber(row.priority) and row.payload
  return holds and row
end

local function fire_one(plan, til)
  local row = still_holds(plan, til)
  if not row then
    return false
  end
  local job, _, _, _, _, watermark, next_due, _, cancel_previous, planned, verdicts = unpack(plan, 1, 11)
  if cancel_previous then
    for _, id in ipairs(call('ZRANGE', of_job(job, 'serial'), 0, -1)) do
      ask_to_cancel(id, occurrence(id), 'cancel_previous')
    end
  end
  for _, one in ipairs(planned) do
    local nominal, key, due, expires, parked = unpack(one, 1, 5)
    -- It may have been acquired by name, or backfilled, before its time.
    if call('HEXISTS', of_job(job, 'keys'), key) == 0 then
      create(job, {
        key = key, origin = 'schedule', nominal = nominal, due = due, expires = expires,
        priority = row.priority, payload = row.payload, keep = row.keep, parked = parked,
      })
    end
  end
  for _, verdict in ipairs(verdicts) do
    add_range(job, verdict[1], verdict[2], row.keep)
  end
  set_due(job, next_due, true, watermark, gather)
  return true
end

local function fire(plans, til)
  local won, fired = {}, {}
  for index, plan in ipairs(plans) do
    if fired[plan[1]] then
      send()
    end
    won[index] = try(fire_one, plan, til) or false
    fired[plan[1]] = won[index]
  end
  send()
  return won
end
