"""What must not be seen, and who may look: secrets in texts, hosts that are only this machine."""
