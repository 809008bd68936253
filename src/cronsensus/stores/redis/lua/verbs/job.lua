-- One job by name, with everything that lists of jobs show.
-- needs: views
local job = call('HGET', SPACE .. 'names', args[1])
return answer(job and job_row(job))
