-- needs: starting jobs forgetting eras
local session, name, key, nominal, lease, most, fingerprint = unpack(args, 1, 7)
if not alive(session) then
  return refuse('LEASELOST')
end

local job, refusal = living(name)
if not job then
  return refuse(refusal)
end
local row = read(job_key(job), 'horizon', 'watermark', 'manual', 'next_due', 'priority', 'payload', 'keep', 'paused_at')
if nominal and row.horizon and tonumber(nominal) <= tonumber(row.horizon) then
  return refuse('TOOOLD ' .. row.horizon)
end
if nominal and tonumber(nominal) - now > most then
  return refuse('TOOEARLY ' .. NOW)
end
expire()
if nominal and not kept_elsewhere(job, tonumber(nominal)) then
  return answer({ NOW, {}, {} })
end
local id = call('HGET', of_job(job, 'keys'), key)
if id and not nominal then
  local old = read(occurrence_key(id), 'key', 'state', 'finished', 'parent')
  if old.finished and tonumber(old.finished) < now - row.keep then -- it counts as pruned
    delete_final(job, id, old)
    id = false
  end
end
if not id and nominal and row.paused_at then
  return answer({ NOW, {}, {} })
elseif not id then
  id = create(job, {
    key = key, origin = nominal and 'schedule' or 'enqueue', nominal = nominal, due = NOW,
    priority = row.priority, payload = row.payload, keep = row.keep,
    fingerprint = fingerprint,
  })
  -- Another program keeps time, and nothing before this is owed.
  local time = nominal and row.manual and tonumber(nominal)
  if time and time > tonumber(row.watermark) and (not row.next_due or tonumber(row.next_due) > time) then
    call('HSET', job_key(job), 'watermark', nominal)
  end
  send()
elseif call('HGET', occurrence_key(id), 'state') ~= 'pending' then
  return answer({ NOW, {}, {} })
end
local stands = read(occurrence_key(id), 'fingerprint', 'attempt')
if stands.fingerprint and tonumber(stands.attempt or 0) > 0 then
  fingerprint = stands.fingerprint
elseif fingerprint then
  call('HSET', occurrence_key(id), 'fingerprint', fingerprint)
elseif stands.fingerprint then
  call('HDEL', occurrence_key(id), 'fingerprint')
end
local claims, specs = start({ pending_row(id) }, session, lease)
claims[1][16] = fingerprint
return answer({ NOW, claims, specs })
