-- needs: choosing functions
local session, limit, digest, names, left_out, lease = unpack(args, 1, 6)
if not alive(session) then
  return refuse('LEASELOST')
end
if not knows(session, digest, names) then
  return answer(false)
end
expire()
return answer({ NOW, start(choose(session, limit, left_out, now), session, lease) })
