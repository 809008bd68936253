"""The start, deploy or boot to which this process belongs: the key of a start-up task; see ADR 14.

A generation of workers is all that a master has started: gunicorn, uvicorn or a pool of processes, with the workers
that replace dead ones. So it is named by that master: the oldest ancestor that runs the same program in the same
process group. A shell, systemd or supervisord is another program, or puts what it starts into another group.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from typing import Any

import psutil

from cronsensus.membership.liveness import started_at
from cronsensus.stores.boot import host_identity

_FURTHEST = 50


def generation_of(
    scope: str,
    *,
    deploy_id: str | None,
    generation: str | None,
    release: Callable[[], str],
    function: Callable[..., Any],
) -> str:
    """Return the key of the start, deploy or boot that this process belongs to.

    Args:
        scope: ``"start"``, ``"deploy"`` or ``"host"``.
        deploy_id: of this deploy; ``None``: the version of the code as far as it can be seen: ``release``, and the file
            that ``function`` is written in.
        generation: of the workers; ``None``: the process that started them.
        release: which version of the code declares its jobs.
        function: the task.
    """
    if scope == "host":
        return f"host:{host_identity().partition('/')[0]}"
    if scope == "deploy":
        return f"deploy:{deploy_id}" if deploy_id else f"code:{release()}+{_digest_function(function)}"
    return f"start:{generation}" if generation else f"start:{name_master()}"


def name_master() -> str:
    """Return a name, never reused, of the process that started this generation of workers."""
    pid = os.getpid()
    program, group = _program_of(pid), _group_of(pid)
    for _ in range(_FURTHEST):
        parent = _parent_of(pid)
        if parent is None or program is None or _program_of(parent) != program or _group_of(parent) != group:
            break
        pid = parent
    return f"{host_identity()}:{pid}:{started_at(pid)}"


def _parent_of(pid: int) -> int | None:
    try:
        parent = psutil.Process(pid).ppid()
    except psutil.Error:
        return None
    return parent or None


def _program_of(pid: int) -> str | None:
    try:
        return psutil.Process(pid).exe() or None
    except psutil.Error:
        return None


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid) if hasattr(os, "getpgid") else 0
    except OSError:
        return None


def _digest_function(function: Callable[..., Any]) -> str:
    try:
        source = inspect.findsource(inspect.unwrap(function))[0]
    except (OSError, TypeError):
        return "unknown"
    return hashlib.blake2b("".join(source).encode(), digest_size=6).hexdigest()
