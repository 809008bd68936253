"""The pages that Sphinx reads: those of the repository, with links that lead somewhere on a site, and generated ones.

Pure but for ``write_pages``: a page is its name, as ``zh/guide``, and its text.
"""

import os.path
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

from shelves import CHINESE, ENGLISH, FRONT

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
HOME = "https://github.com/cronsensus/cronsensus"

_LINK = re.compile(
    r"(?P<code>^(?P<indent> *)(?P<fence>`{3,}|~{3,}).*?^(?P=indent)(?P=fence) *$|`[^`\n]+`)"
    r"|(?P<before>\]\(|^\[[^\]]+\]: |(?:src|srcset|href)=\")(?P<link>[^)\s\"]+)",
    re.MULTILINE | re.DOTALL,
)
_PICTURE = re.compile(r'<picture><source [^>]*srcset="([^"]+)"><img src="([^"]+)" ([^>]*)></picture>')


class BadLink(Exception):
    """A link that leads nowhere; the message says on which page."""


def list_files() -> dict[Path, str]:
    """Return the files of the repository that are pages of the site, and the name of each page."""
    found = {path: path.relative_to(DOCS).with_suffix("").as_posix() for path in sorted(DOCS.rglob("*.md"))}
    return found | {ROOT / "CHANGELOG.md": "changelog"}


def read_pages() -> dict[str, str]:
    """Return the text of each page of the repository by its name.

    Raises:
        BadLink: one leads to no file; all are named.
    """
    names = list_files()
    pages, missing = dict[str, str](), list[str]()
    for path, name in names.items():
        pages[name] = relink(path.read_text(encoding="utf-8"), path, names, missing)
    if missing:
        raise BadLink("; ".join(missing))
    return pages


def relink(text: str, page: Path, names: dict[Path, str], missing: list[str]) -> str:
    """Return the text of a page with links for the site.

    A page of the site is linked to as such, from wherever its text stood; a picture stays; any other file of the
    repository is shown by GitHub, and ``missing`` gets what is no file.
    """
    here = (Path("/") / names[page]).parent

    def lead(link: str) -> str:
        place, hash_, anchor = link.partition("#")
        if not place or "://" in place or place.startswith("mailto:"):
            return link
        target = Path(os.path.normpath(page.parent / unquote(place)))
        if target in names:
            return os.path.relpath(f"/{names[target]}.md", here) + hash_ + anchor
        if DOCS / "img" in target.parents and target.exists():
            return os.path.relpath(f"/{target.relative_to(DOCS)}", here)
        if not target.exists() or ROOT not in target.parents:
            missing.append(f"{page.relative_to(ROOT)}: no such file: {link}")
        kind = "tree" if target.is_dir() else "blob"
        return f"{HOME}/{kind}/main/{os.path.relpath(target, ROOT)}{hash_}{anchor}"

    text = _LINK.sub(lambda found: found["code"] or found["before"] + lead(found["link"]), text)
    # The reader chooses light or dark on the page itself, which a media query knows nothing of.
    pair = r'<img class="only-light" loading="lazy" src="\2" \3><img class="only-dark" loading="lazy" src="\1" \3>'
    return _PICTURE.sub(pair, text)


def title_of(text: str) -> str:
    """Return the title of a page, as Markdown."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE) or re.match(r"(.+)\n=+\n", text)
    return found[1] if found else ""


def list_decisions(pages: dict[str, str]) -> str:
    """Return the page that lists all decisions (ADRs)."""
    rows = [
        f"- [{title_of(text)}]({name.removeprefix('adr/')}.md)"
        for name, text in sorted(pages.items())
        if name.startswith("adr/")
    ]
    return "\n".join(
        ["# Decisions", "", "What was decided, why, and what was not chosen: one page each, in order.", "", *rows, ""]
    )


def _toctree(names: tuple[str, ...], caption: str = "") -> str:
    options = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "```{toctree}", *options, ":hidden:", "", *(f"/{name}" for name in names), "```", ""])


def write_pages(pages: dict[str, str], folder: Path) -> None:
    """Write what Sphinx reads into an empty folder: the pages, the shelves, the pictures."""
    shutil.copytree(DOCS / "img", folder / "img")
    decisions = tuple(name for name in sorted(pages) if name.startswith("adr/") and name != "adr/index")
    hidden = {
        "index": "".join(_toctree(names, shelf) for shelf, names in (ENGLISH | CHINESE).items()),
        "zh/index": "",
        "adr/index": _toctree(decisions),
    }
    for name, text in pages.items():
        # Pages of directives are reStructuredText, which the extensions that make them speak.
        path = folder / f"{name}{'.rst' if text.startswith('..') else '.md'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        orphan = "---\norphan: true\n---\n" if name in FRONT[1:] else ""
        path.write_text(orphan + text + hidden.get(name, ""), encoding="utf-8")
