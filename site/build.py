"""Build the site of the documentation into build/site: make docs.

The pages are those of docs/ and what reference.py makes of the code; shelves.py says where each stands. A warning of
Sphinx, a dead link and a request to another host are errors. Runs in .venv-docs.
"""

import shutil
import sys
import time
from pathlib import Path

from dead_links import find_faults
from html_pages import finish_pages
from outputs import index_for_search, write_llms, write_markdown
from reference import write_reference
from sources import ROOT, BadLink, list_decisions, read_pages, write_pages
from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build"
SITE = BUILD / "site"


def run_sphinx(builder: str, sources: Path, into: Path, *options: str, only: tuple[str, ...] = ()) -> None:
    """Run a builder of Sphinx, on all pages or ``only`` some; end the program where it fails."""
    trees = str(BUILD / "site-trees")
    files = [str(sources / name) for name in only]
    if code := sphinx(["-q", "-b", builder, "-c", str(HERE), "-d", trees, *options, str(sources), str(into), *files]):
        sys.exit(code)


def main() -> None:
    """Build, and say what was built."""
    began = time.monotonic()
    sources, as_markdown = BUILD / "site-sources", BUILD / "site-markdown"
    for folder in (SITE, sources, as_markdown, BUILD / "site-trees"):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        pages = read_pages()
    except BadLink as error:
        sys.exit(f"docs: {error}")
    pages["adr/index"] = list_decisions(pages)
    pages |= write_reference()
    write_pages(pages, sources)
    run_sphinx("html", sources, SITE, "-W", "--keep-going")
    shutil.copytree(sources / "img", SITE / "img")
    finish_pages(SITE)

    directives = [name for name, text in pages.items() if text.startswith("..")]
    run_sphinx("markdown", sources, as_markdown, "-Q", only=tuple(f"{name}.rst" for name in directives))
    pages |= {name: (as_markdown / f"{name}.md").read_text(encoding="utf-8") for name in directives}
    write_markdown(pages, SITE)
    write_llms(pages, SITE)
    index_for_search(SITE)
    if faults := find_faults(SITE):
        sys.exit("\n".join(f"docs: {fault}" for fault in faults))
    size = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file())
    seconds = time.monotonic() - began
    print(f"docs: {len(pages)} pages, {size / 1e6:.1f} MB, {seconds:.0f} s: {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
