-- How many jobs, paused jobs, pending and running occurrences and live sessions there are.
-- needs: sessions
return answer({
  call('ZCARD', SPACE .. 'jobs'), call('SCARD', SPACE .. 'paused'), call('ZCARD', SPACE .. 'pending'),
  call('ZCARD', SPACE .. 'running'), call('ZCOUNT', OPEN, '(' .. NOW, '+inf'),
})
