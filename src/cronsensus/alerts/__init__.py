"""Alerts: messages about what went wrong, sent once for the whole cluster."""
