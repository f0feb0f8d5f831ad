"""A release is checked before it is unpacked; what is not of the one form is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.errors import (
    FileInTheWay,
    HandoffError,
    NotFound,
    ReleaseRefused,
    StorageError,
    UsageError,
)
from handoff.sessions import release, release_form
from handoff.sessions.release import Limits, Member, extract, make, verify, verify_bytes

NAME, VERSION = "a-plugin", "1.2.3"
MEMBERS = [
    Member("plugin.yaml", b"name: a-plugin\n"),
    Member("__init__.py", b"def register(ctx): ...\n"),
    Member("skills/one/SKILL.md", b"# One\n" * 200),
    Member("bin/run", b"#!/bin/sh\n", 0o755),
    Member("empty.py", b""),
]
ARCHIVE, LISTED = make(NAME, VERSION, MEMBERS)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def listing(**changes: Any) -> dict[str, Any]:
    """The manifest, with changes at the top."""
    return {**json.loads(LISTED), **changes}


def bytes_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def claimed(tar: bytes, rows: list[dict[str, Any]] | None = None) -> tuple[bytes, bytes]:
    """An archive of that tar, with a manifest whose digests of it are right."""
    archive = release_form.compress(tar)
    made = listing()
    made["archive"] |= {"bytes": len(archive), "sha256": sha(archive), "tar_sha256": sha(tar)}
    if rows is not None:
        made["members"] = sorted(rows, key=lambda row: row["path"])
    return archive, bytes_of(made)


def row(path: str, content: bytes = b"x", mode: str = "0644") -> dict[str, Any]:
    return {"path": path, "size": len(content), "sha256": sha(content), "mode": mode}


def tar_of(*infos: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar as any program may write it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, content in infos:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def info(path: str, content: bytes = b"x", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(path)
    made.size, made.mtime = len(content), release_form.STAMP
    for key, value in fields.items():
        setattr(made, key, value)
    return made, content


def refusal(archive: bytes, manifest: bytes, **more: Any) -> dict[str, Any]:
    """The first fault that a release is refused for."""
    with pytest.raises(ReleaseRefused) as caught:
        verify_bytes(archive, manifest, **more)
    faults = caught.value.details["faults"]
    assert faults
    assert caught.value.cause
    return faults[0]


# -- what is right passes ------------------------------------------------------------------


def test_a_release_passes_and_tells_what_it_is() -> None:
    found = verify_bytes(ARCHIVE, LISTED, sha256=sha(ARCHIVE).upper())
    assert found.to_json() == {
        "name": NAME,
        "version": VERSION,
        "sha256": sha(ARCHIVE),
        "digest_given": True,
        "members": len(MEMBERS),
        "bytes": sum(len(one.content) for one in MEMBERS),
    }
    assert not verify_bytes(ARCHIVE, LISTED).digest_given


def test_the_order_of_the_members_given_does_not_matter() -> None:
    assert make(NAME, VERSION, reversed(MEMBERS)) == (ARCHIVE, LISTED)


def test_every_other_program_reads_the_same_members() -> None:
    with tarfile.open(fileobj=io.BytesIO(ARCHIVE), mode="r:gz") as archive:
        found = {one.name: (one.mode, one.mtime, one.uid, one.gid) for one in archive}
        texts = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    stamp = release_form.STAMP
    assert found == {f"{NAME}/{one.path}": (one.mode, stamp, 0, 0) for one in MEMBERS}
    assert texts == {f"{NAME}/{one.path}": one.content for one in MEMBERS}
    assert gzip.decompress(ARCHIVE) == release_form.unzip(ARCHIVE, release_form.LIMITS)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(/[a-z_]{1,8}){0,2}\.py", fullmatch=True),
        st.tuples(st.binary(max_size=2000), st.sampled_from([0o644, 0o755])),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_made_can_be_verified_and_is_the_same_again(
    files: dict[str, tuple[bytes, int]],
) -> None:
    members = [Member(path, content, mode) for path, (content, mode) in files.items()]
    archive, manifest = make(NAME, VERSION, members)
    found = verify_bytes(archive, manifest)
    assert {one.path: (one.content, one.mode) for one in found.members} == {
        f"{NAME}/{path}": value for path, value in files.items()
    }


def test_it_is_extracted_from_memory_into_a_new_folder(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        made = extract(verify_bytes(ARCHIVE, LISTED), str(tmp_path))
    finally:
        os.umask(before)
    assert made == str(tmp_path / NAME)
    for one in MEMBERS:
        path = tmp_path / NAME / one.path
        assert path.read_bytes() == one.content
        assert path.stat().st_mode & 0o777 == one.mode
    assert sorted(os.listdir(tmp_path)) == [NAME]
    with pytest.raises(FileInTheWay):
        extract(verify_bytes(ARCHIVE, LISTED), str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [NAME]


def test_a_folder_that_can_not_be_written_is_said_and_left_alone(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StorageError):
        extract(verify_bytes(ARCHIVE, LISTED), str(tmp_path / "none"))
    assert not os.listdir(tmp_path)


# -- the digest and the manifest -----------------------------------------------------------


def test_another_digest_is_refused_before_anything_else_is_read() -> None:
    assert refusal(ARCHIVE, b"no manifest", sha256="0" * 64)["code"] == "digest"


@pytest.mark.parametrize("given", ["0", "g" * 64, "0" * 65, "sha256:" + "0" * 64])
def test_what_is_no_digest_is_said_to_be_none(given: str) -> None:
    with pytest.raises(UsageError, match="64 hexadecimal"):
        verify_bytes(ARCHIVE, LISTED, sha256=given)


def test_a_byte_more_or_another_one_is_another_archive() -> None:
    assert refusal(ARCHIVE + b"\0", LISTED)["code"] == "digest"
    changed = ARCHIVE[:40] + bytes([ARCHIVE[40] ^ 1]) + ARCHIVE[41:]
    assert refusal(changed, LISTED)["code"] == "digest"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        LISTED[:-10],
        LISTED.replace(b'"schema"', b'"schema": "x", "schema"', 1),
        bytes_of(listing(schema="handoff-release/2")),
        bytes_of(listing(more=1)),
        bytes_of(listing(name="../x")),
        bytes_of(listing(name="other")),
        bytes_of(listing(version="../../1")),
        bytes_of(listing(version=1)),
        bytes_of(listing(archive={})),
        bytes_of(listing(archive={**listing()["archive"], "bytes": 1.5})),
        bytes_of(listing(archive={**listing()["archive"], "bytes": True})),
        bytes_of(listing(archive={**listing()["archive"], "name": "else.tar.gz"})),
        bytes_of(listing(members={})),
        bytes_of(listing(members=[])),
        bytes_of(listing(members=[1])),
        bytes_of(listing(members=list(reversed(listing()["members"])))),
        bytes_of(listing(members=[{**row("a-plugin/x"), "mode": "4755"}])),
        bytes_of(listing(members=[{**row("a-plugin/x"), "mode": 420}])),
        bytes_of(listing(members=[{**row("a-plugin/x"), "size": -1}])),
        bytes_of(listing(members=[{**row("a-plugin/x"), "size": 10**400}])),
        bytes_of(listing(members=[{**row("a-plugin/x"), "sha256": "0"}])),
    ],
)
def test_a_manifest_of_another_shape_is_refused(data: bytes) -> None:
    refusal(ARCHIVE, data)


@pytest.mark.parametrize(
    "path",
    [
        "a-plugin/../x",
        "a-plugin/./x",
        "a-plugin//x",
        "/a-plugin/x",
        "../a-plugin/x",
        "a-plugin",
        "a-plugin/",
        "a-plugin/...",
        "other/x",
        "a-plugin/x\\y",
        "a-plugin/x:y",
        "a-plugin/x\ny",
        "a-plugin/x\0y",
        "a-plugin/é",
        "a-plugin/" + "x" * 101,
        "",
        7,
        None,
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_in_the_manifest(path: Any) -> None:
    rows = [{**row("a-plugin/x"), "path": path}]
    assert refusal(ARCHIVE, bytes_of(listing(members=rows)))["code"] == "path"


@pytest.mark.parametrize(
    "paths",
    [
        ["a-plugin/x", "a-plugin/x"],
        ["a-plugin/X", "a-plugin/x"],
        ["a-plugin/x", "a-plugin/x/y"],
        ["a-plugin/X/y", "a-plugin/x"],
    ],
)
def test_members_that_meet_are_refused_in_the_manifest(paths: list[str]) -> None:
    rows = [row(path) for path in paths]
    assert refusal(ARCHIVE, bytes_of(listing(members=rows)))["code"] == "duplicate"


def test_all_that_differs_is_listed() -> None:
    rows = listing()["members"]
    rows[0]["sha256"] = "0" * 64
    rows[1]["size"] += 1
    rows[2]["mode"] = "0644" if rows[2]["mode"] == "0755" else "0755"
    gone = rows.pop()
    rows.append(row(f"{NAME}/zz"))
    with pytest.raises(ReleaseRefused) as caught:
        verify_bytes(ARCHIVE, bytes_of(listing(members=rows)))
    codes = {(one["path"], one["code"]) for one in caught.value.details["faults"]}
    assert codes == {
        (rows[0]["path"], "digest"),
        (rows[1]["path"], "digest"),
        (rows[2]["path"], "mode"),
        (gone["path"], "unlisted"),
        (f"{NAME}/zz", "missing"),
    }


# -- hostile archives: whoever made them also wrote the manifest ---------------------------

PATH = f"{NAME}/x"
LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0}
HOSTILE: dict[str, Callable[[], bytes]] = {
    "a symbolic link": lambda: tar_of(info(PATH, b"", **LINK)),
    "a hard link": lambda: tar_of(info(PATH, b"", **{**LINK, "type": tarfile.LNKTYPE})),
    "a link, then a file through it": lambda: tar_of(
        info(PATH, b"", **{**LINK, "linkname": ".."}), info(f"{PATH}/y")
    ),
    "a device": lambda: tar_of(info(PATH, b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "a block device": lambda: tar_of(info(PATH, b"", type=tarfile.BLKTYPE)),
    "a pipe": lambda: tar_of(info(PATH, b"", type=tarfile.FIFOTYPE)),
    "a folder": lambda: tar_of(info(f"{NAME}/d", b"", type=tarfile.DIRTYPE), info(PATH)),
    "an old plain file": lambda: tar_of(info(PATH, type=tarfile.AREGTYPE)),
    "a contiguous file": lambda: tar_of(info(PATH, type=tarfile.CONTTYPE)),
    "a sparse file": lambda: tar_of(info(PATH, type=tarfile.GNUTYPE_SPARSE)),
    "a traversal": lambda: tar_of(info(f"{NAME}/../../x")),
    "an absolute path": lambda: tar_of(info("/x")),
    "twice": lambda: tar_of(info(PATH), info(PATH)),
    "unlisted": lambda: tar_of(info(PATH), info(f"{NAME}/y")),
    "missing": tar_of,
    "setuid": lambda: tar_of(info(PATH, mode=0o4755)),
    "writable by all": lambda: tar_of(info(PATH, mode=0o666)),
    "an owner": lambda: tar_of(info(PATH, uid=1000)),
    "an owner's name": lambda: tar_of(info(PATH, uname="ada")),
    "another time": lambda: tar_of(info(PATH, mtime=1)),
    "a header of names (GNU)": lambda: tar_of(info(f"{NAME}/{'y' * 150}"), form=tarfile.GNU_FORMAT),
    "a header of names (pax)": lambda: tar_of(
        info(PATH, pax_headers={"path": "../../x"}), form=tarfile.PAX_FORMAT
    ),
    "an archive behind the end": lambda: tar_of(info(PATH)) + tar_of(info("/x")),
    "bytes behind the end": lambda: tar_of(info(PATH)) + b"x" * 512,
    "no end": lambda: tar_of(info(PATH))[:1024],
    "half a header": lambda: tar_of(info(PATH))[:700],
    "cut within a member": lambda: tar_of(info(PATH, b"x" * 600))[:1024],
    "bytes in the padding": lambda: bytes(
        tar_of(info(PATH))[:600] + b"evil" + tar_of(info(PATH))[604:]
    ),
    "a size in base 256": lambda: (
        tar_of(info(PATH))[:124] + b"\x80" + bytes(10) + b"\1" + tar_of(info(PATH))[136:]
    ),
    "nothing at all": lambda: b"",
    "noise": lambda: bytes(range(256)) * 8,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_refused_although_its_manifest_agrees(what: str) -> None:
    archive, manifest = claimed(HOSTILE[what](), [row(PATH)])
    fault = refusal(archive, manifest)
    assert fault["code"] != "digest" or fault["path"], what


def test_the_same_as_a_plain_file_passes() -> None:
    """The hostile ones fail for what makes them hostile, not for how these tests make them."""
    tar = tar_of(info(PATH))
    archive, manifest = claimed(tar[:2048], [row(PATH)])
    assert verify_bytes(archive, manifest).members == (Member(PATH, b"x"),)


def test_gzip_with_more_than_one_stream_or_anything_else_in_it_is_refused() -> None:
    tar = tar_of(info(PATH))[:2048]
    good = release_form.compress(tar)
    for bad in (
        good + good,
        good + b"\0",
        good[:-1],
        good[:-8] + b"\0" * 8,
        gzip.compress(tar, mtime=1),
        zlib.compress(tar),
        tar,
        b"",
        good[:10],
    ):
        made = listing(members=[row(PATH)])
        made["archive"] |= {"bytes": len(bad), "sha256": sha(bad), "tar_sha256": sha(tar)}
        assert refusal(bad, bytes_of(made))["code"] == "form"


def test_bombs_end_at_the_limits() -> None:
    small = Limits(archive=4096, tar=64 * 1024, member=1500, members=6, manifest=4096)
    bomb, manifest = claimed(b"\0" * (1 << 20))
    assert refusal(bomb, manifest, limits=small)["code"] == "too_large"
    assert refusal(b"x" * 5000, LISTED, limits=small)["code"] == "too_large"
    many = tar_of(*(info(f"{NAME}/{n}") for n in range(9)))
    archive, manifest = claimed(many, [row(f"{NAME}/1")])
    assert refusal(archive, manifest, limits=small)["code"] == "too_large"
    large = tar_of(info(PATH, b"x" * 2000))
    archive, manifest = claimed(large, [row(PATH)])
    assert refusal(archive, manifest, limits=small)["code"] == "too_large"


@settings(max_examples=300)
@given(st.data())
def test_no_change_to_the_tar_passes(data: st.DataObject) -> None:
    """One place of the tar changed, the digests of the manifest mended: refused, typed."""
    tar = bytearray(release_form.unzip(ARCHIVE, release_form.LIMITS))
    at = data.draw(st.integers(0, len(tar) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=64))
    before = bytes(tar)
    tar[at : at + len(patch)] = patch
    if bytes(tar) == before:
        return
    archive, manifest = claimed(bytes(tar))
    refusal(archive, manifest)


@given(st.binary(max_size=4096), st.binary(max_size=512))
def test_noise_is_refused_typed(archive: bytes, manifest: bytes) -> None:
    refusal(archive, manifest)
    refusal(*claimed(archive))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.sampled_from(["schema", "name", "version", "archive", "members"]), JSON)
def test_a_manifest_with_any_other_value_is_refused_typed(key: str, value: Any) -> None:
    if listing()[key] != value:
        refusal(ARCHIVE, bytes_of(listing(**{key: value})))


# -- files ---------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / f"{NAME}-{VERSION}.tar.gz").write_bytes(ARCHIVE)
    (tmp_path / release.MANIFEST).write_bytes(LISTED)
    return tmp_path


def test_the_manifest_beside_the_archive_is_taken(files: pathlib.Path) -> None:
    archive = str(files / f"{NAME}-{VERSION}.tar.gz")
    assert verify(archive).version == VERSION
    (files / "m.json").write_bytes(bytes_of(listing(schema="x")))
    with pytest.raises(ReleaseRefused):
        verify(archive, manifest=str(files / "m.json"))


def test_another_name_of_the_archive_is_another_archive(files: pathlib.Path) -> None:
    (files / "x.tar.gz").write_bytes(ARCHIVE)
    with pytest.raises(ReleaseRefused, match=r"not of x\.tar\.gz"):
        verify(str(files / "x.tar.gz"))


def test_files_that_are_none_are_said_to_be_none(files: pathlib.Path) -> None:
    archive = str(files / f"{NAME}-{VERSION}.tar.gz")
    cases: list[tuple[str, str, type[HandoffError]]] = [
        (str(files / "none.tar.gz"), "", NotFound),
        (archive, str(files / "none.json"), NotFound),
        (str(files), "", ReleaseRefused),
        (archive, str(files), ReleaseRefused),
        (archive + "\0", "", StorageError),
        ("/dev/zero", archive, ReleaseRefused),
    ]
    os.mkfifo(files / "pipe")
    cases.append((str(files / "pipe"), "", ReleaseRefused))
    for path, manifest, error in cases:
        with pytest.raises(error):
            verify(path, manifest=manifest)


def test_what_can_not_be_verified_is_not_made() -> None:
    for bad in (
        Member("../x", b""),
        Member("x", b"", 0o600),
        Member("x" * 300, b""),
        Member("é", b""),
    ):
        with pytest.raises(ReleaseRefused):
            make(NAME, VERSION, [bad])
    with pytest.raises(ReleaseRefused):
        make(NAME, VERSION, [])
    with pytest.raises(ReleaseRefused):
        make("Bad Name", VERSION, MEMBERS)
