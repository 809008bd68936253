-- needs: reporting
local answers = {}
for index, note in ipairs(args[1]) do
  answers[index] = try(keep_note, unpack(note, 1, 6)) or false
end
return answer(answers)
