"""Alerts: who is told what went wrong, decided once for the whole cluster."""
