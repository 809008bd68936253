"""The choices of a guarded function for busy and failed keys."""

from __future__ import annotations

from typing import Literal

OnBusy = Literal["wait", "skip", "raise"]
"""While another call runs under the key."""
OnError = Literal["free", "keep"]
"""The key, after an exception."""
OnMismatch = Literal["error", "return"]
"""A call with another payload under a key that a recorded call has."""
