-- needs: locks queues
local name, place, token = unpack(args, 1, 3)
local row = lock_under(name, place, token)
if not row then
  return answer(false)
end
free_lock(name, place, row.session)
call_next(name)
return answer(true)
