from __future__ import annotations

import json
import os
import pathlib
import socket
import stat

import pytest

from handoff import places
from handoff.agentd.listening import (
    SOCKET_PATH,
    control_socket_path,
    listeners,
    publish,
    withdraw,
)
from handoff.errors import AlreadyRunning, PathTooLong, UsageError


def test_both_listeners_and_what_is_told_of_them(tmp_path: pathlib.Path) -> None:
    found, endpoint = listeners("127.0.0.1:0", None, tmp_path)
    try:
        path = str(endpoint["socket"])
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(path)
        port = found[1].getsockname()[1]
        assert endpoint["url"] == f"http://127.0.0.1:{port}"
        with pytest.raises(AlreadyRunning):
            listeners(f"127.0.0.1:{port}", None, tmp_path)
    finally:
        for one in found:
            one.close()


def test_off_means_the_unix_socket_alone(tmp_path: pathlib.Path) -> None:
    found, endpoint = listeners("127.0.0.1:0", "off", tmp_path)
    assert len(found) == 1
    assert endpoint["url"] == ""
    found[0].close()


@pytest.mark.parametrize(
    "wanted", ["0.0.0.0:7777", "example.invalid:1", "nonsense", "127.0.0.1:99999"]
)
def test_what_can_not_be_listened_on(tmp_path: pathlib.Path, wanted: str) -> None:
    with pytest.raises(UsageError):
        listeners(wanted, None, tmp_path)


def test_a_long_path_moves_to_a_private_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * SOCKET_PATH)
    runtime = tmp_path / "r"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    path = pathlib.Path(control_socket_path(deep))
    if len(str(runtime)) < SOCKET_PATH - 30:
        assert path.parent.parent == runtime
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        # Somebody else's folder, or one that others may enter, is not taken.
        path.parent.chmod(0o755)
        monkeypatch.setattr("handoff.agentd.listening.os.getuid", lambda: os.geteuid() + 1)
        with pytest.raises(PathTooLong):
            control_socket_path(deep)


def test_the_endpoint_is_published_private_and_withdrawn_by_its_owner(
    tmp_path: pathlib.Path,
) -> None:
    config = str(tmp_path / "config.yaml")
    told = pathlib.Path(places.endpoint_path(config))
    mine: dict[str, object] = {"socket": str(tmp_path / "s"), "pid": 1}
    publish(config, mine)
    assert stat.S_IMODE(told.stat().st_mode) == 0o600
    assert json.loads(told.read_text()) == mine
    withdraw(config, {**mine, "pid": 2})
    assert told.exists()
    withdraw(config, mine)
    assert not told.exists()
