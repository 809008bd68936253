"""``python -m cronsensus``: the same as the command ``cronsensus``."""

from cronsensus.cli import main

if __name__ == "__main__":
    main()
