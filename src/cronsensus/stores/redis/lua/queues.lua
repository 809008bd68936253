-- Wait queues of locks: a queue of waiters for each lock, a channel for each waiter.

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

-- Notify the first waiter that is subscribed. It leaves the queue by that, and so do those before it.
local function wake_next(name)
  local waiter = call('ZRANGE', queue_key(name), 0, 0)[1]
  while waiter do
    leave_queue(name, waiter)
    if call('PUBLISH', SPACE .. 'line:' .. waiter, name) > 0 then
      return
    end
    waiter = call('ZRANGE', queue_key(name), 0, 0)[1]
  end
end
