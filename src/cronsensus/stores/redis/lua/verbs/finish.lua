-- needs: reporting
even_if_full()
local answers = {}
for index, outcome in ipairs(args[1]) do
  answers[index] = try(settle, unpack(outcome, 1, 9)) or { false, false }
end
return answer(answers)
