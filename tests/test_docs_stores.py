"""The page on stores says what the stores say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_of_the_page_is_what_the_stores_say():
    made = subprocess.run([sys.executable, ROOT / "scripts" / "stores"], capture_output=True, text=True, check=True)
    assert made.stdout in (ROOT / "docs" / "stores.md").read_text(), "run scripts/stores --write"
