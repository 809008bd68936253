-- Remove a waiter from the queues of some locks.
-- needs: queues
local names, waiter = unpack(args, 1, 2)
for _, name in ipairs(names) do
  leave_queue(name, waiter)
end
return answer(true)
