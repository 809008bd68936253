-- Put a waiter at the end of the queue of a lock, unless it is in the queue already.
-- needs: queues
local name, waiter = unpack(args, 1, 2)
call('ZADD', queue_key(name), 'NX', call('HINCRBY', META, 'waiter', 1), waiter)
call('ZADD', QUEUES, NOW, name)
return answer(true)
