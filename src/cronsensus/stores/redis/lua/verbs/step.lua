-- The report of a node in one step. Everything that may refuse it is read before the first write: whether its session is
-- alive, whether its functions are known, whether the job may have one more run. Results come first and are written in any
-- case; then a server without free memory refuses the rest.
-- needs: reporting firing claim_query functions
local notes, outcomes, given_back, plans, ahead, reserve, nodes, oldest = unpack(args, 1, 8)
local session, limit, digest, names, left_out, lease = unpack(args, 9, 14)
local lost = (limit or #plans > 0) and not alive(session)
local claims = limit and not lost
if claims and not names and not knows(session, digest) then
  return answer(false)
end

local ends = #outcomes + #given_back > 0
local full = ends and (limit or #plans + #notes > 0) and is_full()
local noted, settled, returned = {}, {}, {}
for index, note in ipairs(notes) do
  noted[index] = not full and try(keep_note, unpack(note, 1, 6)) or false
end
local function end_runs()
  for index, outcome in ipairs(outcomes) do
    settled[index] = try(settle, unpack(outcome, 1, 8)) or { false, false }
  end
  for index, claim in ipairs(given_back) do
    returned[index] = try(give_back, unpack(claim, 1, 5)) or false
  end
end
if ends then
  write_even_if_full(end_runs)
end
send()
if full then
  return refuse('OOM')
end

local won, taken, specs
local usual = claims and not names and #plans > 0 and #plans <= limit
for _, plan in ipairs(usual and plans or {}) do
  usual = usual and #plan[10] == 1 and not plan[10][1][5] and #plan[11] == 0 and not plan[9] and plan[5] == 0 and plan[13]
    and not left_out[plan[1]]
end
if usual then
  won, taken, specs = fire_and_start(plans, session, lease, now + ahead)
end
if not won and lost then
  won, taken, specs = {}, {}, {}
  for index = 1, #plans do
    won[index] = false
  end
elseif not won then
  local til = now + ahead
  won, taken, specs = fire(plans, til), {}, {}
  if claims then
    if names then
      knows(session, digest, names)
    end
    expire()
    local chosen = choose(session, limit, left_out, til, reserve, oldest)
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
