-- The eras of a job: in which of them did its trigger name the times, and in which another program?

-- Whether another program named the job's times then, because its era had no trigger. A time before the first era counts
-- as in that.
local function kept_elsewhere(job, time)
  local eras = call('LRANGE', of_job(job, 'eras'), 0, -1)
  for index = #eras, 1, -1 do
    local since, _, trigger = unpack(cjson.decode(eras[index]), 1, 3)
    if since < time or index == 1 then
      return trigger == cjson.null
    end
  end
end
