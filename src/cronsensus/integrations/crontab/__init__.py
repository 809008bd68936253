"""What a crontab says, and the same as code of cronsensus. Reads text only: no crontab is changed, no command run."""
