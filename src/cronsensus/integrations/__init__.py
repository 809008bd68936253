"""Optional parts for those who need them; the core finds them by entry points, and imports none."""
