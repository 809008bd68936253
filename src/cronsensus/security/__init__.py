"""Secrets in texts, which are masked, and hosts that can only be this machine."""
