-- Grant the lowest free place of a lock; false: the lock is held by as many as the smallest limit of its holders allows. Of
-- two callers in the same instant, the second finds the place held.
-- needs: locks tokens
local name, holder, ttl, session, limit = unpack(args, 1, 5)
if session and not is_session_alive(session) then
  return refuse('LEASELOST')
end
local holders, smallest_limit, taken_places = 0, limit, {}
for _, text in ipairs(call('ZRANGEBYLEX', SPACE .. 'locks', '[' .. name .. '\0', '(' .. name .. '\1')) do
  local _, member = name_and_place(text)
  local row = read(lock_key(name, member), 'until', 'session', 'most')
  if is_held(row) then
    holders, taken_places[member] = holders + 1, true
    smallest_limit = math.min(smallest_limit, tonumber(row.most) or smallest_limit)
  end
end
if holders >= smallest_limit then
  return answer(false)
end
local place = 0
while taken_places[place] do
  place = place + 1
end
local row = read(lock_key(name, place), 'until', 'session')
if not schema then
  ensure_identity()
  call('HSET', META, 'schema', SCHEMA)
end
if row['until'] then
  free_lock(name, place, row.session)
end
local key, member, token, lease_end = lock_key(name, place), place_of(name, place), integer_text(next_tokens(1)), now_plus(ttl)
call('ZADD', SPACE .. 'locks', 0, member)
if session then
  call('HSET', key, 'holder', holder, 'token', token, 'acquired', NOW, 'until', lease_end, 'most', limit, 'session', session)
  call('SADD', SPACE .. 'locks:' .. session, member)
else
  call('HSET', key, 'holder', holder, 'token', token, 'acquired', NOW, 'until', lease_end, 'most', limit)
  call('ZADD', SPACE .. 'leases', lease_end, member)
end
return answer({ place, token })
