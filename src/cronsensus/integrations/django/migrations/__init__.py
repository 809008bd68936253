"""What Django knows of the models; the tables are the store's, and ``migrate`` makes them by ``post_migrate``."""
