"""What users and store authors test with. Floor 6."""
