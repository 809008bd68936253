-- Write one entry of the trail.
record(unpack(args[1], 1, 5))
return answer(true)
