-- Who stands in line for a lock: a queue of waiters by name, each with a channel of its own.

local QUEUES = SPACE .. 'queues'

local function queue_key(name)
  return SPACE .. 'queue:' .. name
end

local function leave_queue(name, waiter)
  call('ZREM', queue_key(name), waiter)
  if call('EXISTS', queue_key(name)) == 0 then
    call('ZREM', QUEUES, name)
  end
end

-- Tell the first who still listens; who is told is out of the queue, and so is who no longer listens.
local function call_next(name)
  local waiter = call('ZRANGE', queue_key(name), 0, 0)[1]
  while waiter do
    leave_queue(name, waiter)
    if call('PUBLISH', SPACE .. 'line:' .. waiter, name) > 0 then
      return
    end
    waiter = call('ZRANGE', queue_key(name), 0, 0)[1]
  end
end
