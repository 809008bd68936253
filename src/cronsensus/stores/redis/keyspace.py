"""The keys and channels of a namespace in Redis."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Keyspace:
    """The keys of one namespace, which all lie in one hash slot.

    The slot of a key is that of the text between its first braces. A user's text never stands there as it is: a brace
    in it would tear the keys apart.

    Attributes:
        name: the text between the braces.
        meta: the key that is there as soon as anything is, and from which the scripts make all others.
        never: a key that never exists.
        pulse: a key that means nothing; see ``Client``.
        channel: where wake-ups are sent.
    """

    def __init__(self, prefix: str, namespace: str) -> None:
        if _PLAIN.fullmatch(namespace):
            self.name = f"{prefix}:{namespace}"
        else:
            self.name = f"{prefix}:~{hashlib.blake2b(namespace.encode(), digest_size=16).hexdigest()}"
        self.meta = self._key_of("meta")
        self.never = self._key_of("never")
        self.pulse = self._key_of("pulse")
        self.channel = self._key_of("wake")
        self._mark = int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=3).digest())

    def _key_of(self, what: str) -> bytes:
        return f"{{{self.name}}}:{what}".encode()

    def sign_channel(self, session: str) -> bytes:
        """Return the channel that the process of a session listens to; see ``redis_presence``."""
        return self._key_of(f"sign:{session}")

    def waiter_channel(self, waiter: str) -> bytes:
        """Return the channel on which a waiter is notified that a lock may be free."""
        return self._key_of(f"line:{waiter}")

    def __repr__(self) -> str:
        return self.name

    # --- numbers of jobs ----------------------------------------------------------------------------------------------

    def job_id(self, number: str) -> int:
        """Return the id of a job: its number, and a mark of the namespace, which makes it another in every other one.

        So a plan that was made in one namespace finds no job in another.
        """
        return int(number) << 24 | self._mark

    def job_number(self, job_id: int) -> str:
        """Return the number of a job as the keys have it; ``""`` if the id is none of this namespace."""
        if job_id < 0 or job_id & 0xFFFFFF != self._mark:
            return ""
        return f"{job_id >> 24:09d}"
