from __future__ import annotations

import os
import pathlib
import re
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff import config, places
from handoff.errors import ConfigError, StorageError

KEYS = config.keys()
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "config.yaml"


def read(path: pathlib.Path, text: str | bytes) -> tuple[config.Config, list[str]]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o600)
    loaded, warnings = config.load(str(path))
    return loaded, [str(warning) for warning in warnings]


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "---\n...\n", "null\n"])
def test_an_empty_file_is_all_defaults(path: pathlib.Path, text: str) -> None:
    loaded, warnings = read(path, text)
    expected = config.Config(
        path=str(path),
        datadir=str(path.parent),
        repo_root=str(path.parent / "repos"),
        worktrees_dir=str(path.parent / "worktrees"),
    )
    assert loaded == expected
    assert warnings == []


def test_every_kind_of_value(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    loaded, warnings = read(
        path,
        """\
token: 00112233445566778899001122334455
datadir: ~/data
worktrees_dir: trees
path_dirs: [~/bin, /opt/bin]
stalltimeout: 1h30m
max_running: 3
verify:
  - make check
executor: {default: claude, model: 5}
agents:
  mine:
    command: my-agent --acp 'a b'
    env: {DEBUG: 1, EMPTY: ""}
    question: false
  other: {command: [x, "1", true]}
setup: {command: make deps, copy: [.env], timeout: 90s}
limits: {line: 1024, run_output: 2 GB, procs: 7}
proc_fence: {reserve_ratio: 0.10, disabled: false}
targets: {far: {addr: "127.0.0.1:7778", token: t, user: ada}}
log: {level: debug}
approver: {timeout: 1m}
sync:
""",
    )
    assert warnings == []
    assert loaded.token == "00112233445566778899001122334455"
    assert (loaded.datadir, loaded.worktrees_dir) == ("/home/x/data", "/home/x/data/trees")
    assert loaded.path_dirs == ("/home/x/bin", "/opt/bin")
    assert (loaded.stalltimeout, loaded.max_running, loaded.verify) == (5400, 3, ("make check",))
    assert loaded.executor == config.Executor("claude", "5")
    assert loaded.agents["mine"].command == ("my-agent", "--acp", "a b")
    assert loaded.agents["mine"].env == {"DEBUG": "1", "EMPTY": ""}
    assert loaded.agents["mine"].question is False
    assert loaded.agents["other"].command == ("x", "1", "true")
    assert loaded.setup == config.Setup("make deps", (".env",), 90)
    assert loaded.limits == config.Limits(1024, 2 * 10**9, 7)
    assert loaded.proc_fence == config.ProcFence()
    assert loaded.targets["far"] == config.Target("127.0.0.1:7778", "t", "ada")
    assert loaded.sync == config.Sync()


@pytest.mark.parametrize(
    ("text", "line", "key", "told"),
    [
        ("listen: [a]\n", 1, "listen", "expected text, not a sequence"),
        ("\nstalltimeout: 90\n", 2, "stalltimeout", "duration such as 90s"),
        ("stalltimeout: 0s\n", 1, "stalltimeout", "above 0"),
        ("stalltimeout: -1h\n", 1, "stalltimeout", "duration"),
        ("max_running: -1\n", 1, "max_running", "whole number"),
        ("max_running: 1.5\n", 1, "max_running", "whole number"),
        ("max_running: ٣\n", 1, "max_running", "whole number"),
        ("sync:\n  auto: yes\n", 2, "sync.auto", "true or false"),
        ("sync: true\n", 1, "sync", "expected keys with values"),
        ("verify: make\n", 1, "verify", "expected a list"),
        ("verify: [[a]]\n", 1, "verify", "not a sequence"),
        ("limits:\n\n  line: big\n", 3, "limits.line", "size such as 64MiB"),
        ("log: {level: loud}\n", 1, "log.level", "debug or info or warning or error"),
        ("proc_fence: {reserve_ratio: 1}\n", 1, "proc_fence.reserve_ratio", "below 1"),
        ("approver: {blacklist: ['(']}\n", 1, "approver.blacklist", "regular expression"),
        ('agents: {x: {command: "a \'b"}}\n', 1, "agents.x.command", "command line"),
        ("agents: {x: 1}\n", 1, "agents.x", "expected keys"),
        ("env: {x: [1]}\n", 1, "env.x", "not a sequence"),
        ("token: a\nlisten: b\ntoken: c\n", 3, "token", "already on line 1"),
        ("- a\n", 1, "the file", "expected keys"),
        ("plain text\n", 1, "the file", "expected keys"),
        ("? [a]\n: b\n", 1, "the file", "a key must be text"),
    ],
)
def test_a_wrong_value_names_file_line_and_key(
    path: pathlib.Path, text: str, line: int, key: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(path, text)
    message = str(caught.value)
    assert message.startswith(f"{path} line {line}: '{key}': ")
    assert told in message
    assert "\n" not in message
    assert caught.value.details == {"key": key, "line": line}
    assert str(path) in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"a: [1\nb: 2\n", 2),
        (b"listen: x\n\tdatadir: y\n", 2),
        (b"a: 'x\n\n", 3),
        (b"ok: 1\nbad: \xff\n", 2),
        (b"a: *nowhere\n", 1),
        (b"a: \x00\n", None),
        (b"%YAML 9\n", None),
        (b"a: 1\n---\nb: 2\n", None),
    ],
)
def test_a_broken_file_is_one_line_with_its_place(
    path: pathlib.Path, text: bytes, line: int | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(path, text)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    if line is not None:
        assert f" line {line}: " in str(caught.value)


@given(st.binary(max_size=200))
def test_whatever_the_bytes_it_loads_or_is_a_config_error(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            config.load(file.name)
        except ConfigError as error:
            assert "\n" not in str(error)


def test_deep_nesting_is_an_error_not_a_crash(path: pathlib.Path) -> None:
    with pytest.raises(ConfigError):
        read(path, "a: " + "[" * 50_000)


def test_secrets_are_never_in_errors(path: pathlib.Path) -> None:
    for text in (
        "token: [s3cret]\n",
        "targets: {a: {token: {s3cret: 1}}}\n",
        "token:\n  s3cret: x\n",
    ):
        with pytest.raises(ConfigError) as caught:
            read(path, text)
        assert "s3cret" not in str(caught.value) + caught.value.remedy


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listne: x\n", "line 1: unknown key 'listne' is ignored; did you mean 'listen'?"),
        ("executor:\n  defualt: x\n", "line 2: unknown key 'executor.defualt' is ignored; did you mean 'executor.default'?"),
        ("default: fake\n", "unknown key 'default' is ignored; it belongs below 'executor'"),
        ("xyzzy: 1\n", "line 1: unknown key 'xyzzy' is ignored"),
        ("agents: {a: {command: x, comand: y}}\n", "did you mean 'agents.a.command'?"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_a_warning_with_the_nearest(
    path: pathlib.Path, text: str, told: str
) -> None:
    _, warnings = read(path, text)
    assert len(warnings) == 1
    assert told in warnings[0]


def test_a_key_without_effect_is_read_and_reported(path: pathlib.Path) -> None:
    loaded, warnings = read(
        path, "approver: {executor: claude, timeout: 60s}\nsync: {auto: false}\n"
    )
    assert loaded.approver.executor == "claude"
    assert warnings == [
        "line 1: key 'approver.executor' has no effect in this version",
        "line 2: key 'sync.auto' has no effect in this version",
    ]


def test_a_file_that_others_can_read_is_a_warning(path: pathlib.Path) -> None:
    path.write_text("token: x\n")
    path.chmod(0o644)
    warnings = config.load(str(path))[1]
    assert "chmod 600" in str(warnings[0])


def test_missing_unreadable_and_too_large(path: pathlib.Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(str(path))
    assert caught.value.remedy == "handoff init"
    path.mkdir()
    with pytest.raises(ConfigError, match="can't be read"):
        config.load(str(path))
    path.rmdir()
    path.write_text("# " + "x" * (1 << 20))
    with pytest.raises(ConfigError, match="larger"):
        config.load(str(path))


# -- durations ---------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s"
    assert config.parse_duration(text) == hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize("text", ["", "1", "h", "1h 1m", "1x", "-1s", "1h1", ".s", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        config.parse_duration(text)


# -- writing -----------------------------------------------------------------------------


def test_first_file_is_private_has_a_token_and_loads(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new" / "config.yaml"
    assert config.create_default(str(path), executor="claude", listen="off")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    loaded, warnings = config.load(str(path))
    assert warnings == []
    assert re.fullmatch(r"[0-9a-f]{32}", loaded.token)
    assert (loaded.executor.default, loaded.listen) == ("claude", "off")
    assert os.listdir(path.parent) == ["config.yaml"]


def test_an_existing_file_is_never_touched(path: pathlib.Path) -> None:
    path.write_text("mine")
    assert not config.create_default(str(path))
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to(path.parent / "nowhere")
    assert not config.create_default(str(path))
    assert path.is_symlink()


def test_two_at_once_agree_on_one_token(path: pathlib.Path) -> None:
    made: list[bool] = []
    gate = threading.Barrier(8)

    def create() -> None:
        gate.wait()
        made.append(config.create_default(str(path)))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]
    assert os.listdir(path.parent) == ["config.yaml"]


def test_a_place_that_cant_be_written_is_typed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as caught:
        config.create_default(str(tmp_path / "file" / "config.yaml"))
    assert "HANDOFF_HOME" in caught.value.remedy


def test_update_keeps_comments_and_order(path: pathlib.Path) -> None:
    path.write_text(
        "# head\ntoken: 'a'  # mine\n\nexecutor:\n  # which\n  default: fake\nlisten: off\n"
    )
    path.chmod(0o600)
    config.update(str(path), {"executor.default": "claude", "targets.far.addr": "127.0.0.1:1"})
    assert path.read_text() == (
        "# head\ntoken: 'a'  # mine\n\nexecutor:\n  # which\n  default: claude\nlisten: off\n"
        "targets:\n  far:\n    addr: 127.0.0.1:1\n"
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_update_that_would_not_load_changes_nothing(path: pathlib.Path) -> None:
    path.write_text("stalltimeout: 1h\n")
    with pytest.raises(ConfigError):
        config.update(str(path), {"stalltimeout": "soon"})
    assert path.read_text() == "stalltimeout: 1h\n"
    assert os.listdir(path.parent) == ["config.yaml"]


def test_update_through_a_link_keeps_the_link(path: pathlib.Path) -> None:
    real = path.parent / "real.yaml"
    real.write_text("listen: off\n")
    path.symlink_to(real)
    config.update(str(path), {"log.level": "debug"})
    assert path.is_symlink()
    assert "debug" in real.read_text()


# -- keys and places ---------------------------------------------------------------------


def test_every_field_is_a_key_with_a_text() -> None:
    names = [key.name for key in KEYS]
    assert len(names) == len(set(names))
    assert all(key.text and key.type for key in KEYS)
    top = {name.split(".")[0] for name in names}
    assert top == {field.name for field in msgspec.structs.fields(config.Config)} - {"path"}


def test_docs_list_every_key() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for key in KEYS:
        assert f"| `{key.name}` |" in text


def test_places(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HANDOFF_HOME", raising=False)
    monkeypatch.delenv("HANDOFF_CONFIG", raising=False)
    assert config.default_path() == f"{tmp_path}/.handoff/config.yaml"
    monkeypatch.setenv("HANDOFF_HOME", "~/h")
    assert places.config_path() == f"{tmp_path}/h/config.yaml"
    monkeypatch.setenv("HANDOFF_CONFIG", "/x/y.yaml")
    assert places.config_path() == "/x/y.yaml"
    assert places.config_path("~/z.yaml") == f"{tmp_path}/z.yaml"
    assert places.endpoint_path("/x/y.yaml") == "/x/agentd.json"
