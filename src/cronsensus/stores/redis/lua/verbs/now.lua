-- The time of the server.
return answer(NOW)
