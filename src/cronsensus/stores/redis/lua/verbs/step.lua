-- The report of a node in one step. Everything that may refuse it is read before the first write: whether its session is
-- alive, whether its functions are known, whether the job may have one more run. Results come first and are written in any
-- case; then a server without free memory refuses the rest.
-- needs: reporting firing claim_query functions
local notes, outcomes, releases, plans, ahead, reserve, nodes, ignore_class = unpack(args, 1, 8)
local session, limit, digest, names, left_out, lease = unpack(args, 9, 14)
local session_lost = (limit or #plans > 0) and not is_session_alive(session)
local claims = limit and not session_lost
if claims and not names and not has_functions(session, digest) then
  return answer(false)
end

local has_ends = #outcomes + #releases > 0
local is_store_full = has_ends and (limit or #plans + #notes > 0) and is_full()
local notes_written, end_answers, release_answers = {}, {}, {}
for index, note in ipairs(notes) do
  notes_written[index] = not is_store_full and try(record_note, unpack(note, 1, 6)) or false
end
local function write_ends()
  for index, outcome in ipairs(outcomes) do
    end_answers[index] = try(record_end, unpack(outcome, 1, 8)) or { false, false }
  end
  for index, claim in ipairs(releases) do
    release_answers[index] = try(release_claim, unpack(claim, 1, 5)) or false
  end
end
if has_ends then
  write_even_if_full(write_ends)
end
send()
if is_store_full then
  return refuse('OOM')
end

local won, taken, specs
local all_simple = claims and not names and #plans > 0 and #plans <= limit
for _, plan in ipairs(all_simple and plans or {}) do
  -- One occurrence that is not parked, no verdicts, nothing to cancel, none active before, and a function of this session.
  local _, _, _, _, active_seen, _, _, _, cancel_previous, planned, verdicts, _, own_function = unpack(plan, 1, 13)
  all_simple = all_simple and #planned == 1 and not planned[1][5] and #verdicts == 0 and not cancel_previous
    and active_seen == 0 and own_function and not left_out[plan[1]]
end
if all_simple then
  won, taken, specs = fire_and_start(plans, session, lease, now + ahead)
end
if not won and session_lost then
  won, taken, specs = {}, {}, {}
  for index = 1, #plans do
    won[index] = false
  end
elseif not won then
  local due_by = now + ahead
  won, taken, specs = fire(plans, due_by), {}, {}
  if claims then
    if names then
      has_functions(session, digest, names)
    end
    close_late()
    local selected = select_claims(session, limit, left_out, due_by, reserve, ignore_class)
    local reserved_count = #selected - limit
    if reserved_count > 0 and reserved_count < reserve then -- the end of a queue: a part of it for each node
      for place = #selected, limit + math.floor(reserved_count / nodes) + 1, -1 do
        selected[place] = nil
      end
    end
    taken, specs = start_runs(selected, session, lease, ahead > 0, limit)
  end
end
return answer({ notes_written, end_answers, release_answers, won, session_lost, NOW, taken, specs })
