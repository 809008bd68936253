return answer(NOW)
