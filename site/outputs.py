"""What stands beside the pages: each as Markdown, llms.txt, and the index of the search."""

import subprocess
import sys
from pathlib import Path

from shelves import CHINESE, ENGLISH
from sources import title_of

SUMMARY = "Start the same code on every replica: each scheduled time is run once, by one of them, and recorded."


def write_markdown(pages: dict[str, str], site: Path) -> None:
    """Write each page as Markdown beside its HTML."""
    for name, text in pages.items():
        path = site / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_llms(pages: dict[str, str], site: Path) -> None:
    """Write ``llms.txt``, which lists the pages of each shelf, and ``llms-full.txt``, which has all in English."""
    lines = ["# cronsensus", "", f"> {SUMMARY}", ""]
    for shelf, names in (ENGLISH | CHINESE).items():
        lines += [f"## {shelf}", "", *(f"- [{title_of(pages[name])}]({name}.md)" for name in names), ""]
    (site / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    whole = "\n\n".join(pages[name] for names in ENGLISH.values() for name in names)
    (site / "llms-full.txt").write_text(whole, encoding="utf-8")


def index_for_search(site: Path) -> None:
    """Have Pagefind index the pages, by language; it is a program that one of its packages brings."""
    command = [sys.executable, "-m", "pagefind", "--site", str(site), "--quiet"]
    command += ["--root-selector", "article[role=main]", "--exclude-selectors", ".headerlink"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"docs: {' '.join(command)}\n{done.stdout}{done.stderr}")
