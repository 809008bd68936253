"""Tasks that exactly one of several workers does when they start."""
