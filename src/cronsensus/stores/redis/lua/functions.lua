-- The functions that a session can run are sent once, not with each claim: there may be ten thousand.
-- needs: sessions

-- Whether the store has the functions of a session, by their digest. If not, they are written if `names` are given.
local function has_functions(session, digest, names)
  local key = SPACE .. 'functions:' .. session
  if holder_of(session).functions == digest then
    return true
  end
  if not names then
    return false
  end
  call('DEL', key)
  for _, name in ipairs(names) do
    call('SADD', key, name)
  end
  call('HSET', session_key(session), 'functions', digest)
  return true
end
