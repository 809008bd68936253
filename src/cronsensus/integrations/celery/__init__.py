"""What Celery says, in the words of cronsensus."""
