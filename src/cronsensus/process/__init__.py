"""What this process is and does by itself: its identity, its forks, its threads and waits, its log."""
