-- Free a place of a lock, for the holder of its token only, and wake the next waiter.
-- needs: locks queues
local name, place, token, holder, session = unpack(args, 1, 5)
local row = lock_under(name, place, token, holder, session)
if not row then
  return answer(false)
end
free_lock(name, place, row.session)
wake_next(name)
return answer(true)
