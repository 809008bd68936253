"""Crontabs, and the same as code of cronsensus. It only reads text: no crontab is changed, no command run."""
