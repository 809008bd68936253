"""Optional parts; the core finds them by entry points, and imports none."""
