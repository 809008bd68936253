-- Free every place of a lock that is held, whoever holds it, and wake the next waiter for each.
-- needs: locks queues
local name, by, why = unpack(args, 1, 3)
local broken = {}
for _, text in ipairs(call('ZRANGEBYLEX', SPACE .. 'locks', '[' .. name .. '\0', '(' .. name .. '\1')) do
  local _, place = name_and_place(text)
  local row = read(lock_key(name, place), 'holder', 'session', 'token', 'until')
  if is_held(row) then
    broken[#broken + 1] = { place, row.token, row.holder, row.session or '' }
    free_lock(name, place, row.session)
    wake_next(name)
  end
end
if #broken > 0 then
  record(by, 'break', name, why, '{}')
end
return answer(broken)
