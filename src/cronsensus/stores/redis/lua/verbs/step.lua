-- What a node says in one step. What may refuse it is asked before the first write: whether its session lives, whether its
-- functions are known, whether there is room. Results come first and are written in any case; then, of a full server,
-- the refusal of the rest.
-- needs: reporting firing claim_query functions
local notes, outcomes, given_back, plans, ahead, reserve, nodes = unpack(args, 1, 7)
local session, limit, digest, names, left_out, lease = unpack(args, 8, 13)
local lost = (limit or #plans > 0) and not alive(session)
local claims = limit and not lost
if claims and not names and not knows(session, digest) then
  return answer(false)
end

local full = false
if #outcomes + #given_back > 0 then
  full = (limit or #plans + #notes > 0) and is_full()
  even_if_full()
end
local noted, settled, returned = {}, {}, {}
for index, note in ipairs(notes) do
  noted[index] = not full and try(keep_note, unpack(note, 1, 6)) or false
end
for index, outcome in ipairs(outcomes) do
  settled[index] = try(settle, unpack(outcome, 1, 9)) or { false, false }
end
for index, claim in ipairs(given_back) do
  returned[index] = try(give_back, unpack(claim, 1, 5)) or false
end
send()
if full then
  return refuse('OOM')
end

local won, taken, specs = {}, {}, {}
local plan = plans[1]
local usual = claims and limit > 0 and #plans == 1 and #plan[10] == 1 and #plan[11] == 0 and not plan[9]
  and plan[5] == 0 and reserve == 0 and not left_out[plan[1]] and not names
local begun = usual and try(fire_and_start, plan, session, lease, now + ahead)
if begun then
  won[1], taken[1], specs[1] = true, begun[1], begun[2]
elseif lost then
  for index = 1, #plans do
    won[index] = false
  end
else
  local til = now + ahead
  won = fire(plans, til)
  if claims then
    if names then
      knows(session, digest, names)
    end
    expire()
    local chosen = choose(session, limit, left_out, til, reserve)
    local rest = #chosen - limit
    if rest > 0 and rest < reserve then -- the end of a queue: a part of it for each node
      for place = #chosen, limit + math.floor(rest / nodes) + 1, -1 do
        chosen[place] = nil
      end
    end
    taken, specs = start(chosen, session, lease, ahead > 0, limit)
  end
end
return answer({ noted, settled, returned, won, lost, NOW, taken, specs })
