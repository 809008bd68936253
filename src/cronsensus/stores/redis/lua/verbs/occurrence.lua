-- One occurrence by id, and the name of its job.
-- needs: views
local row = occurrence_row(args[1])
return answer(row[1] and { row, name_of(row[1]) })
