-- needs: sessions
return answer({
  call('ZCARD', SPACE .. 'jobs'), call('SCARD', SPACE .. 'paused'), call('ZCARD', SPACE .. 'pending'),
  call('ZCARD', SPACE .. 'running'), call('ZCOUNT', OPEN, '(' .. NOW, '+inf'),
})
