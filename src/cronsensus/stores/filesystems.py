"""Find the kind of file system that a path lies on: SQLite's locks and shared memory work only within one host."""

from __future__ import annotations

import os
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.curlftpfs", "fuse.davfs2",
        "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone", "fuse.s3fs",
        "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs",
    }
)  # fmt: skip
"""Kinds that several hosts share. Local ones that look unusual (overlay, tmpfs, virtiofs, fuse-overlayfs, zfs) are not
here."""


def kind_of(path: Path, mounts: str | None = None) -> str | None:
    """Return the kind of file system that ``path`` (which need not exist) lies on; ``None``: unknown here.

    ``mounts`` is the text of ``/proc/self/mountinfo``, for tests.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    real = os.path.realpath(path)
    best, kind = -1, None
    for line in mounts.splitlines():
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = point in {"/", real} or real.startswith(point + "/")
        if inside and len(point) >= best:  # of equal ones the later mount covers the earlier
            best, kind = len(point), right.split(" ")[0]
    return kind


def is_network(kind: str | None) -> bool:
    """Whether other hosts may have such a file system mounted too."""
    return kind in NETWORK
