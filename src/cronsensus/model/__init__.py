"""Values: frozen, without I/O and without a clock."""
