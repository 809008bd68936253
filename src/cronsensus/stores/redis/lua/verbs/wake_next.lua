-- Wake the next waiter of a lock.
-- needs: queues
wake_next(args[1])
return answer(true)
