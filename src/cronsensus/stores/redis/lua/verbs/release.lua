-- needs: reporting
even_if_full()
local answers = {}
local claims, why, crashed = unpack(args, 1, 3)
for index, claim in ipairs(claims) do
  answers[index] = try(give_back, claim[1], claim[2], claim[3], why, crashed) or false
end
return answer(answers)
