"""What the application's code declares: functions, and jobs that call them."""
