"""Links of a built site that lead nowhere, and what its pages would ask of another host."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "srcset"), ("iframe", "src")}
_URL_IN_CSS = re.compile(r"(?:url\(|@import\s)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids = set[str]()
        self.links = list[str]()
        self.fetched = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) in _FETCHED and value:
                self.fetched.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


def find_faults(site: Path) -> list[str]:
    """Return a sentence for each link to a page, an anchor or a file that is not there, and each request abroad."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    faults = list[str]()
    for path, page in pages.items():
        here = path.relative_to(site)
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                faults += [f"{here} asks another host: {link}"] if link in page.fetched else []
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                faults.append(f"{here}: no such file: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                faults.append(f"{here}: no such heading: {link}")
    for sheet in sorted(site.rglob("*.css")):
        found = _URL_IN_CSS.findall(sheet.read_text(encoding="utf-8"))
        faults += [f"{sheet.relative_to(site)} asks another host: {url}" for url in found]
    return faults
