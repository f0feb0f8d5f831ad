"""A node of ours that has a permanent token, as the ones written in Go have."""

from __future__ import annotations

import hashlib
import pathlib
import ssl
import threading

import pytest
from tests.support.nodes import Place


@pytest.mark.parametrize("words", [(), ("--sealed",)])
@pytest.mark.parametrize("how", ["rotate", "pair"])
def test_another_token_ends_no_command(
    tmp_path: pathlib.Path, words: tuple[str, ...], how: str
) -> None:
    place = Place(tmp_path)
    config, file = place.config("lab"), tmp_path / "token"
    config.parent.mkdir(parents=True)
    try:
        place.serve()
        told = place.asked("pair", "lab", "--token", *words)
        file.write_text(told["token"])
        pem = (tmp_path / "brain" / "cert.pem").read_text()
        pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        where = ("--config", str(config), "--server", told["address"], "--name", "lab")
        place.node("pair", *where, "--token-file", str(file), "--pin", pin)
        child = place.start_node("lab")
        command = (
            f"echo x >>{tmp_path}/ran; until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 7"
        )
        codes: list[int] = []

        def run() -> None:
            codes.append(
                place.nodes("exec", "lab", "--", "sh", "-c", command, code=None).returncode
            )

        asked = threading.Thread(target=run)
        asked.start()
        place.until((tmp_path / "ran").exists)
        if how == "rotate":
            new = place.asked("rotate", "lab")["token"]
        else:
            new = place.asked("pair", "lab", "--token", "--replace", *words)["token"]
        assert child.wait(20) == 3
        assert place.status("lab") == "refused"
        config.write_text(config.read_text().replace(told["token"], new))
        place.start_node("lab")
        (tmp_path / "go").touch()
        asked.join(40)
        assert codes == [7]
        assert (tmp_path / "ran").read_text() == "x\n"
    finally:
        (tmp_path / "go").touch()
        place.close()
