"""Instants, durations, and the clocks that give them."""
