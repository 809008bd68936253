-- Named locks. Each has places, counted from 0, and each place one holder.
-- needs: sessions

local function lock_key(name, place)
  return SPACE .. 'lock:' .. place .. ':' .. name
end

-- Return a place as the indexes have it: it sorts by name, then by place. No name contains a NUL.
local function place_of(name, place)
  return name .. '\0' .. string.format('%06.0f', place)
end

local function name_and_place(text)
  local name, place = string.match(text, '^(.*)%z(%d+)$')
  return name, tonumber(place)
end

-- Whether a place is held: its lease has not run out, and its session, if it has one, is alive.
local function is_held(row)
  return row['until'] and now < tonumber(row['until']) and (not row.session or is_session_alive(row.session))
end

local function free_lock(name, place, session)
  local entry = place_of(name, place)
  call('DEL', lock_key(name, place))
  call('ZREM', SPACE .. 'locks', entry)
  if session then
    call('SREM', SPACE .. 'locks:' .. session, entry)
  else
    call('ZREM', SPACE .. 'leases', entry)
  end
end

-- Return a place if it is held under the token, by that holder. (A token alone may have been given twice, by a server
-- whose clock lags behind that of the one that it replaced.)
local function lock_under(name, place, token, holder, session)
  local row = read(lock_key(name, place), 'token', 'until', 'session', 'holder')
  local granted = row.token == token and row.holder == holder and row.session == session
  return granted and is_held(row) and row or nil
end
