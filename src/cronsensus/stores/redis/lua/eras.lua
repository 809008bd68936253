-- Who kept the time of a job, and when.

-- Whether another program keeps the job's time then: it had no trigger; before it was defined, as at first.
local function kept_elsewhere(job, time)
  local eras = call('LRANGE', of_job(job, 'eras'), 0, -1)
  for index = #eras, 1, -1 do
    local since, _, trigger = unpack(cjson.decode(eras[index]), 1, 3)
    if since < time or index == 1 then
      return trigger == cjson.null
    end
  end
end
