"""Answers about jobs, runs and nodes, as data and plain sentences: what the command line prints and a page can show.

Nothing here knows of colours, of the width of a terminal, or of how it is asked.
"""
