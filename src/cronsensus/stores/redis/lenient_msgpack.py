"""Decode an answer that contains a text that is not UTF-8.

The fast decoder refuses such an answer as a whole. The text may be one field of one row that was edited by hand, and
everything beside it can be read.
"""

from __future__ import annotations

import struct
from typing import Any

_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
_LENGTHS = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_COUNTS = {0xDC: (">H", False), 0xDD: (">I", False), 0xDE: (">H", True), 0xDF: (">I", True)}
_WORDS = {0xC0: None, 0xC2: False, 0xC3: True}


def decode_answer(answer: bytes) -> Any:
    """Return what MessagePack holds, of the kinds that scripts answer with; half characters are shown as escapes."""
    return _Reader(answer).read_value()


class _Reader:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._at = 0

    def read_value(self) -> Any:
        kind = self._read_bytes(1)[0]
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        if kind < 0xA0:
            return self._read_several(kind & 0x0F, pairs=kind < 0x90)
        if kind < 0xC0:
            return self._read_text(kind & 0x1F)
        if kind in _WORDS:
            return _WORDS[kind]
        if kind in _NUMBERS:
            return self._read_number(_NUMBERS[kind])
        if kind in _LENGTHS:
            return self._read_text(self._read_number(_LENGTHS[kind]))
        form, pairs = _COUNTS[kind]
        return self._read_several(self._read_number(form), pairs=pairs)

    def _read_bytes(self, count: int) -> bytes:
        read = self._answer[self._at : self._at + count]
        self._at += count
        return read

    def _read_number(self, form: str) -> Any:
        return struct.unpack(form, self._read_bytes(struct.calcsize(form)))[0]

    def _read_text(self, length: int) -> str:
        return self._read_bytes(length).decode(errors="backslashreplace")

    def _read_several(self, count: int, *, pairs: bool) -> Any:
        if pairs:
            return {self.read_value(): self.read_value() for _ in range(count)}
        return [self.read_value() for _ in range(count)]
