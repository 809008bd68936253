-- The eras of a job: in some its trigger names the times, in others another program does.

-- Whether another program names the job's times at an instant, because that era has no trigger. An instant before the first
-- era counts as in the first.
local function is_named_elsewhere(job, time)
  local eras = call('LRANGE', job_part_key(job, 'eras'), 0, -1)
  for index = #eras, 1, -1 do
    local since, _, trigger = unpack(cjson.decode(eras[index]), 1, 3)
    if since < time or index == 1 then
      return trigger == cjson.null
    end
  end
end
