"""What a scheduler has open: its settings in force, and its store with locks and guarded calls."""
