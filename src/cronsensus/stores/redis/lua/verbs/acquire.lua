-- needs: starting jobs
local session, name, key, nominal, lease = unpack(args, 1, 5)
if not alive(session) then
  return refuse('LEASELOST')
end
local job, refusal = living(name)
if not job then
  return refuse(refusal)
end
local row = read(job_key(job), 'horizon', 'watermark', 'manual', 'next_due', 'priority', 'payload', 'keep')
if nominal and row.horizon and tonumber(nominal) <= tonumber(row.horizon) then
  return refuse('TOOOLD ' .. row.horizon)
end
expire()
local id = call('HGET', of_job(job, 'keys'), key)
if not id then
  id = create(job, {
    key = key, origin = nominal and 'schedule' or 'enqueue', nominal = nominal, due = NOW,
    priority = row.priority, payload = row.payload, keep = row.keep,
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
return answer({ NOW, start({ pending_row(id) }, session, lease) })
