"""What is changed in the pages that Sphinx has made: anchors, and the theme's own words on Chinese pages."""

import posixpath
import re
from pathlib import Path

_HEADING = re.compile(
    r'<section id="(?P<id>[^"]+)">\s*(?:<span id="(?P<as_on_github>[^"]*)"></span>\s*)?<(?P<tag>h[1-6])>'
)
_LINK = re.compile(r'href="(?P<page>[^"#:]*)#(?P<anchor>[^"]+)"')
_TEST_NAME = re.compile(r'<li>(?=<p><code[^>]*><span class="pre">(?:src|tests)/[^<\s]+</span></code></p>\s*</li>)')
_CHINESE_WORDS = {
    "On this page": "本页内容",
    ">Next<": ">下一页<",
    ">Previous<": ">上一页<",
    ">Home<": ">首页<",
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
    "Toggle site navigation sidebar": "显示或隐藏导航",
    "Toggle table of contents sidebar": "显示或隐藏本页目录",
    "Toggle Light / Dark / Auto color theme": "切换浅色、深色、自动",
    "Toggle Light / Dark / Auto": "切换浅色、深色、自动",
}


def name_anchors(pages: dict[str, str]) -> dict[str, str]:
    """Return pages, by their paths, whose headings have the ids that GitHub gives them; links to them follow.

    Sphinx numbers headings without Latin letters, so that an address would change with each heading above it; and
    it has the id on the section, while the search leads to headings.
    """
    renamed = {
        (path, found["id"]): found["as_on_github"]
        for path, html in pages.items()
        for found in _HEADING.finditer(html)
        if found["as_on_github"]
    }

    def lead(path: str, found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found["page"])) if found["page"] else path
        return f'href="{found["page"]}#{renamed.get((target, found["anchor"]), found["anchor"])}"'

    def name(found: re.Match[str]) -> str:
        return f'<section>\n<{found["tag"]} id="{found["as_on_github"] or found["id"]}">'

    return {
        path: _LINK.sub(lambda found, path=path: lead(path, found), _HEADING.sub(name, html))  # type: ignore[misc]
        for path, html in pages.items()
    }


def scroll_with_keys(html: str) -> str:
    """Return the page with blocks of code that the keyboard reaches: a long line is read by scrolling."""
    return html.replace("<pre>", '<pre tabindex="0">')


def rank_low(html: str) -> str:
    """Return the page so that the search shows others first."""
    return html.replace('<article role="main"', '<article role="main" data-pagefind-weight="0.2"')


def leave_test_names_out(html: str) -> str:
    """Return the page so that the search passes over items of lists that are the path of a test and nothing else."""
    return _TEST_NAME.sub("<li data-pagefind-ignore>", html)


def speak_chinese(html: str) -> str:
    """Return a Chinese page with the theme's own words in Chinese: a site of Sphinx has one language."""
    for english, chinese in _CHINESE_WORDS.items():
        html = html.replace(english, chinese)
    return html


def finish_pages(site: Path) -> None:
    """Change the built pages in place."""
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    for path, html in name_anchors(pages).items():
        done = leave_test_names_out(scroll_with_keys(html))
        done = speak_chinese(done) if path.startswith("zh/") else done
        done = rank_low(done) if path.startswith(("adr/", "changelog")) else done
        (site / path).write_text(done, encoding="utf-8")
