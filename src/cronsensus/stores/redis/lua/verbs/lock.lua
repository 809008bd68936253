-- Two callers that want a place in the same instant run one after the other; the second finds it held.
-- needs: locks tokens
local name, holder, ttl, session, limit = unpack(args, 1, 5)
if session and not alive(session) then
  return refuse('LEASELOST')
end
local holders, most, held = 0, limit, {}
for _, text in ipairs(call('ZRANGEBYLEX', SPACE .. 'locks', '[' .. name .. '\0', '(' .. name .. '\1')) do
  local _, at = name_and_place(text)
  local row = read(lock_key(name, at), 'until', 'session', 'most')
  if is_held(row) then
    holders, held[at] = holders + 1, true
    most = math.min(most, tonumber(row.most) or most)
  end
end
if holders >= most then
  return answer(false)
end
local place = 0
while held[place] do
  place = place + 1
end
local row = read(lock_key(name, place), 'until', 'session')
if not schema then
  have_identity()
  call('HSET', META, 'schema', SCHEMA)
end
if row['until'] then
  free_lock(name, place, row.session)
end
local key, at, token, lease_end = lock_key(name, place), place_of(name, place), whole(next_tokens(1)), later(ttl)
call('ZADD', SPACE .. 'locks', 0, at)
if session then
  call('HSET', key, 'holder', holder, 'token', token, 'acquired', NOW, 'until', lease_end, 'most', limit, 'session', session)
  call('SADD', SPACE .. 'locks:' .. session, at)
else
  call('HSET', key, 'holder', holder, 'token', token, 'acquired', NOW, 'until', lease_end, 'most', limit)
  call('ZADD', SPACE .. 'leases', lease_end, at)
end
return answer({ place, token })
