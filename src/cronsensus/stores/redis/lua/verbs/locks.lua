-- The places of locks that are held, by name and place: of one lock or of all.
-- needs: locks
local only, limit, PAGE = args[1], args[2], 200
local rows, from, upto = {}, '-', '+'
if only then
  from, upto = '[' .. only .. '\0', '(' .. only .. '\1'
end
repeat
  local page = call('ZRANGEBYLEX', SPACE .. 'locks', from, upto, 'LIMIT', 0, PAGE)
  for _, text in ipairs(page) do
    from = '(' .. text
    local name, place = name_and_place(text)
    local row = read(lock_key(name, place), 'holder', 'session', 'token', 'acquired', 'until')
    if #rows < limit and try(is_held, row) then
      rows[#rows + 1] = {
        name, place, row.holder, row.session, row.token, row.acquired, integer_text(row['until'] - now),
        row.session and call('HGET', session_key(row.session), 'spec'),
      }
    end
  end
until #page < PAGE or #rows >= limit
return answer(rows)
