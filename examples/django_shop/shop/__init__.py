"""Orders and invoices."""
