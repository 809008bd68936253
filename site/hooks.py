"""What Sphinx is told on its way: languages, and help texts that are no markup."""

import re
from typing import Any

from shelves import CHINESE, ENGLISH
from sphinx.application import Sphinx

_SHELF = re.compile(r'<p class="caption".*?(?=<p class="caption"|\Z)', re.DOTALL)


def keep_shelves(tree: str, captions: dict[str, tuple[str, ...]]) -> str:
    """Return the navigation with the shelves of one language."""
    head = tree.partition('<p class="caption"')[0]
    kept = (part for part in _SHELF.findall(tree) if any(f">{caption}<" in part for caption in captions))
    return head + "".join(kept)


def other_language(name: str, known: set[str]) -> str:
    """Return the same page in the other language, or the first page there."""
    twin = name.removeprefix("zh/") if name.startswith("zh/") else f"zh/{name}"
    return twin if twin in known else "index" if name.startswith("zh/") else "zh/index"


def _set_page(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: object) -> None:  # noqa: ARG001
    chinese = name.startswith("zh/")
    context["other_language"] = other_language(name, set(app.env.found_docs))
    context["is_chinese"] = chinese
    if chinese:
        context["language"] = "zh-CN"
        context["master_doc"] = context["root_doc"] = "zh/index"
    if "furo_navigation_tree" in context:
        context["furo_navigation_tree"] = keep_shelves(context["furo_navigation_tree"], CHINESE if chinese else ENGLISH)


def _keep_help_as_it_is(app: Sphinx, ctx: object, lines: list[str]) -> None:  # noqa: ARG001
    """Change the lines of a help text so that nothing in them is markup; columns stay columns."""
    kept, columns = list[str](), False
    for line in lines:
        if line.startswith("| ") or line == "|":
            if not columns:
                kept += ["", "::", ""]
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
    app.connect("sphinx-click-process-description", _keep_help_as_it_is)
    for part in ("options", "epilog", "usage", "arguments"):
        app.connect(f"sphinx-click-process-{part}", _escape)
    app.connect("html-page-context", _set_page, priority=900)  # after the theme has made its navigation
    return {"parallel_read_safe": True, "parallel_write_safe": True}
