-- The identity of the store and when it was created.
return answer(call('HMGET', META, 'identity', 'born'))
