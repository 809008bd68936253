"""Text for a terminal: without control characters, padded and cut by its display width."""

from __future__ import annotations

import re

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean_text(text: str, *, lines: bool = False) -> str:
    """Return ``text`` with control, direction and half characters written as escapes; ``lines`` keeps newlines."""
    if text.isascii() and text.isprintable():  # nearly every line of a log
        return text
    if lines:
        return "\n".join(clean_text(line.replace("\t", "    ")) for line in text.replace("\r\n", "\n").split("\n"))
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return {"\n": r"\n", "\t": r"\t", "\r": r"\r"}.get(found[0]) or (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    )


def width_of(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes: two for each wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad_text(text: str, width: int) -> str:
    """Return ``text`` with spaces up to ``width`` columns of a terminal."""
    return text + " " * (width - width_of(text))


def squeeze_text(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` columns, cut in the middle: ids and hosts differ at both ends."""
    if width_of(text) <= width:
        return text
    from rich.cells import set_cell_size

    tail = (width - 1) // 2
    end = text[-tail:] if tail else ""
    while width_of(end) > tail:
        end = end[1:]
    return set_cell_size(text, width - 1 - width_of(end)).rstrip() + "…" + end
