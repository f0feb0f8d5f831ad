"""Which paths can be looked at without waiting for another machine or program.

A name on a file system of this machine's own is looked up in microseconds; one on a network's
may hang for ever. To hand every look to a thread costs more than the look. So what lies on
this machine's own disks is looked at at once, and everything else by a thread.

The kernel's list of mounts (proc_pid_mountinfo(5)) says what is where, and poll(2) on it when
it has changed. A system without one has no path that is known to be near.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import stat

__all__ = ["Mounts"]

MOUNTINFO = "/proc/self/mountinfo"
#: file systems whose every answer comes from this kernel and its own disks. Not: zfs, whose
#: size of a folder is a count of names
OWN = frozenset(
    {
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "vfat", "exfat", "iso9660", "squashfs"),
        *("erofs", "tmpfs", "ramfs", "devtmpfs", "overlay", "rootfs"),
        *("proc", "sysfs", "devpts", "cgroup", "cgroup2", "mqueue", "hugetlbfs", "debugfs"),
        *("tracefs", "securityfs", "pstore", "efivarfs", "configfs", "bpf", "nsfs", "fusectl"),
        *("binfmt_misc", "selinuxfs"),
    }
)
#: disks of other machines behind a file system of this one
_FAR_DISK = re.compile(r"/dev/(nbd|rbd|drbd)")
_OCTAL = re.compile(r"\\([0-7]{3})")
#: names in a path that are looked at one by one
DEPTH = 64
#: bytes of a folder that holds few names: on none of these file systems more than 220
FEW = 4096


class Mounts:
    """The mounts as the kernel has them now.

    source: the kernel's list.
    """

    def __init__(self, source: str = MOUNTINFO) -> None:
        self._far: frozenset[str] | None = None
        self._fd = -1
        self._poll = select.poll() if hasattr(select, "poll") else None
        with contextlib.suppress(OSError):
            self._fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            if self._poll is not None:
                self._poll.register(self._fd, select.POLLPRI)

    def near(self, path: str, *, few: bool = False) -> bool:
        """Whether an absolute path is on a disk of this machine's own, and so is every folder
        on the way; False if a link is on the way, or anything can't be said. few: and is a
        folder of few names, or none."""
        far = self._known()
        if far is None or not path.startswith("/"):
            return False
        names = [name for name in path.split("/") if name not in {"", "."}]
        if len(names) > DEPTH or ".." in names or "/" in far:
            return False
        at, found = "", None
        for name in names:
            at += "/" + name
            if at in far:
                return False
            try:
                found = os.lstat(at)
            except OSError:  # nothing is there: that is an answer, too
                return True
            except ValueError:  # a name that can't be one
                return False
            if stat.S_ISLNK(found.st_mode):
                return False
        return not few or (found is not None and found.st_size <= FEW)

    def close(self) -> None:
        """Let go of the list."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._far = None

    def _known(self) -> frozenset[str] | None:
        """The mount points that are not near; None if nobody can say."""
        if self._fd < 0 or self._poll is None:
            return None
        try:
            if self._far is None or self._poll.poll(0):
                self._far = _far_ones(_whole(self._fd))
        except (OSError, ValueError):
            self._far = None
        return self._far


def _whole(fd: int) -> str:
    parts, offset = [], 0
    while data := os.pread(fd, 1 << 16, offset):
        parts.append(data)
        offset += len(data)
    return os.fsdecode(b"".join(parts))


def _far_ones(text: str) -> frozenset[str]:
    """Mount points, from ``36 35 98:0 /root /point options… - type source options``. What is
    mounted over what counts as well: it is not known which of them a path meets.

    Raises:
        ValueError: it is no such list.
    """
    found = set()
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(kind) < 2:
            raise ValueError("no list of mounts")
        if kind[0] not in OWN or _FAR_DISK.match(kind[1]):
            found.add(_OCTAL.sub(lambda sign: chr(int(sign[1], 8)), fields[4]))
    return frozenset(found)
