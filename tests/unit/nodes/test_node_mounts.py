"""What is near enough to be looked at from the event loop."""

from __future__ import annotations

import os
import pathlib

import pytest

from handoff.nodes.node.mounts import Mounts

LOCAL = "36 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"


def table(folder: pathlib.Path, *more: str) -> Mounts:
    (folder / "mounts").write_text(LOCAL + "".join(f"{one}\n" for one in more))
    return Mounts(str(folder / "mounts"))


@pytest.mark.parametrize(
    ("point", "path", "near"),
    [
        ("/far", "/far", False),
        ("/far", "/far/below", False),
        ("/far", "/farther", True),
        ("/far", "/nothing/of/that/name", True),
        ("/with\\040blank", "/with blank/a", False),
        ("/", "/etc", False),
    ],
)
@pytest.mark.parametrize(
    "kind",
    ["nfs4 host:/x", "fuse.sshfs x", "autofs x", "ext4 /dev/nbd0", "ext4 /dev/drbd/by-res/0"],
)
def test_what_is_mounted_from_elsewhere_is_far(
    tmp_path: pathlib.Path, point: str, path: str, near: bool, kind: str
) -> None:
    mounts = table(tmp_path, f"37 36 0:40 / {point} rw shared:2 master:1 - {kind} rw")
    assert mounts.near(path) is near
    mounts.close()


def test_a_link_on_the_way_is_not_followed(tmp_path: pathlib.Path) -> None:
    mounts = table(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert mounts.near(str(tmp_path / "folder" / "nothing"))
    assert not mounts.near(str(tmp_path / "link"))
    assert not mounts.near(str(tmp_path / "link" / "nothing"))
    assert not mounts.near(f"{tmp_path}/folder/../folder")
    assert not mounts.near("relative")
    assert not mounts.near("/a\0b")
    assert not mounts.near("/x" * 100)
    mounts.close()


def test_a_folder_of_many_names_is_no_small_one(tmp_path: pathlib.Path) -> None:
    mounts = table(tmp_path)
    folder = tmp_path / "many"
    folder.mkdir()
    assert mounts.near(str(folder), few=True)
    for number in range(1000):
        (folder / f"a-name-of-some-length-{number:06d}").touch()
    assert os.stat(folder).st_size > 4096
    assert not mounts.near(str(folder), few=True)
    assert mounts.near(str(folder))
    mounts.close()


@pytest.mark.parametrize("text", ["", "nonsense\n", "36 1 254:0 / / rw - ext4\n"])
def test_without_a_list_nothing_is_near(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "mounts").write_text(text)
    mounts = Mounts(str(tmp_path / "mounts"))
    assert mounts.near("/etc") is (text == "")
    mounts.close()
    assert not mounts.near("/etc")
    assert not Mounts(str(tmp_path / "nothing")).near("/etc")
