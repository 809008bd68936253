"""How a scheduler's node starts and stops: by its verbs, by signals, and while the store is away."""
