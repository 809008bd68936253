-- needs: queues
call_next(args[1])
return answer(true)
