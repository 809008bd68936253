-- Carry plans out. A plan is {job, name, revision, watermark seen, active seen, watermark, next due, not before,
-- cancel previous, {{nominal, key, due, expires, parked}, …}, {{last, text of the range without its id}, …}, definition,
-- function of the job if the session declared it}.
-- needs: occurrences jobs

-- Return the row of the plan's job if nothing has changed since the plan was made, and the plan is due by `due_by`; else
-- false. Of two nodes that fire the same plan, the second finds another watermark.
local function read_if_unchanged(plan, due_by)
  local job, name, revision, seen_watermark, active_seen, watermark, _, not_before = unpack(plan, 1, 8)
  local row = read(
    job_key(job),
    'name', 'revision', 'watermark', 'overlap', 'paused_at', 'retired_at', 'priority', 'payload', 'keep', 'digest',
    'last_since', 'concurrency', 'function', 'spec'
  )
  local definition = plan[12]
  local is_unchanged = row.name == name and row.revision == revision and row.watermark == seen_watermark
    and (definition == '' or definition == definition_of(row))
    and not row.paused_at and not row.retired_at
    and count_active(job, row.overlap) == active_seen
    and tonumber(watermark) >= tonumber(seen_watermark)
    and (not not_before or tonumber(not_before) <= due_by)
    and tonumber(row.keep) and tonumber(row.priority) and row.payload
  return is_unchanged and row
end

local function fire_one(plan, due_by)
  local row = read_if_unchanged(plan, due_by)
  if not row then
    return false
  end
  local job, _, _, _, _, watermark, next_due, _, cancel_previous, planned, verdicts = unpack(plan, 1, 11)
  if cancel_previous then
    for _, id in ipairs(call('ZRANGE', job_part_key(job, 'serial'), 0, -1)) do
      ask_to_cancel(id, occurrence(id), 'cancel_previous')
    end
  end
  for _, occurrence_plan in ipairs(planned) do
    local nominal, key, due, expires, parked = unpack(occurrence_plan, 1, 5)
    -- It may have been acquired by name, or backfilled, before its time.
    if call('HEXISTS', job_part_key(job, 'keys'), key) == 0 then
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

local function fire(plans, due_by)
  local won, fired_jobs = {}, {}
  for index, plan in ipairs(plans) do
    if fired_jobs[plan[1]] then
      send()
    end
    won[index] = try(fire_one, plan, due_by) or false
    fired_jobs[plan[1]] = won[index]
  end
  send()
  return won
end
