-- needs: firing
return answer((fire(args[1], now)))
