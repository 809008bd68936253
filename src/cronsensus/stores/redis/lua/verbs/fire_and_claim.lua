-- needs: firing choosing functions
local ahead, plans, session, limit, digest, names, left_out, lease = unpack(args, 1, 8)
local til = now + ahead
local any = false
for _, plan in ipairs(plans) do
  any = any or try(still_holds, plan, til)
end
if any and not alive(session) then
  return refuse('LEASELOST')
end
if any and not knows(session, digest, names) then
  return answer(false)
end
local won, carried_out = fire(plans, til)
if not carried_out then
  return answer({ won, NOW, {}, {} })
end
expire()
return answer({ won, NOW, start(choose(session, limit, left_out, til), session, lease, ahead > 0) })
