return answer(call('HMGET', META, 'identity', 'born'))
