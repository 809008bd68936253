"""What processes ran that only observe a schedule which another program keeps: noted here, counted for the audit."""
