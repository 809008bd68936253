"""What Sphinx is told on its way: the side bar, languages, and help texts that are no markup."""

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from shelves import CHINESE, ENGLISH
from sphinx.application import Sphinx


def list_shelves(current: str, titles: dict[str, str], pathto: Callable[[str], str]) -> str:
    """Return the navigation of a page, as Sphinx would write it: the shelves of its language.

    Sphinx makes a tree of all pages and all headings for each page, which takes longer than all the rest. The decisions
    are listed where one of them is read.
    """

    def lines() -> Iterator[str]:
        for shelf, names in (CHINESE if current.startswith("zh/") else ENGLISH).items():
            yield f'<p class="caption"><span class="caption-text">{shelf}</span></p><ul>'
            for name in names:
                yield item(name, 1)
                if name == "adr/index" and current.startswith("adr/"):
                    decisions = (each for each in sorted(titles) if each.startswith("adr/") and each != name)
                    yield f"<ul>{''.join(item(each, 2) + '</li>' for each in decisions)}</ul>"
                yield "</li>"
            yield "</ul>"

    def item(name: str, level: int) -> str:
        here = name == current or (name == "adr/index" and current.startswith("adr/"))
        link = f'<a class="reference internal" href="{pathto(name)}">{escape(titles[name])}</a>'
        return f'<li class="toctree-l{level}{" current current-page" if here else ""}">{link}'

    return "".join(lines())


def other_language(name: str, known: set[str]) -> str:
    """Return the same page in the other language, or the first page there."""
    twin = name.removeprefix("zh/") if name.startswith("zh/") else f"zh/{name}"
    return twin if twin in known else "index" if name.startswith("zh/") else "zh/index"


def _set_page(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: object) -> None:  # noqa: ARG001
    titles = {known: title.astext() for known, title in app.env.titles.items()}
    context["other_language"] = other_language(name, set(titles))
    context["is_chinese"] = name.startswith("zh/")
    if context["is_chinese"]:
        context["language"] = "zh-CN"
        context["master_doc"] = context["root_doc"] = "zh/index"
    shelves = list_shelves(name, titles, context["pathto"])
    context["toctree"] = lambda **_: shelves


def _search_with_pagefind_alone(app: Sphinx) -> None:
    app.builder.search = False


def _keep_help_as_it_is(app: Sphinx, ctx: object, lines: list[str]) -> None:  # noqa: ARG001
    """Change the lines of a help text so that nothing in them is markup; columns stay columns."""
    kept, columns = list[str](), False
    for line in lines:
        if line.startswith("| ") or line == "|":
            kept += [] if columns else ["", "::", ""]
            kept.append("    " + line[2:])
            columns = True
        else:
            kept += [""] if columns and line else []
            kept.append(re.sub(r"(?<!\\)([*`|_])", r"\\\1", line))
            columns = False
    lines[:] = kept


def _escape(app: Sphinx, ctx: object, lines: list[str]) -> None:  # noqa: ARG001
    lines[:] = [re.sub(r"(?<!\\)([*`])", r"\\\1", line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call, and when."""
    app.connect("builder-inited", _search_with_pagefind_alone)
    app.connect("sphinx-click-process-description", _keep_help_as_it_is)
    for part in ("options", "epilog", "usage", "arguments"):
        app.connect(f"sphinx-click-process-{part}", _escape)
    app.connect("html-page-context", _set_page, priority=100)  # before the theme makes its navigation
    return {"parallel_read_safe": True, "parallel_write_safe": True}
