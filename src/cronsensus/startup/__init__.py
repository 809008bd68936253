"""What exactly one of several workers does when they start."""
