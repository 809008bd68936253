"""Where job functions run: threads, an event loop, processes of their own."""
