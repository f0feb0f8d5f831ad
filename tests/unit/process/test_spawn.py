from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import ENV

from handoff.process import spawn


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\nx", ["/bin/sh"]),
        ("#! /bin/sh -e -x\n", ["/bin/sh", "-e -x"]),
        ("#!/usr/bin/env\tnode \n", ["/usr/bin/env", "node"]),
        ("#!", []),
        ("#!\n", []),
        ("plain", []),
        ("", []),
        ("#!" + "/x" * 300, ["/x" * 127]),
    ],
)
def test_the_interpreter_line_as_the_kernel_reads_it(tmp_path: Path, text: str, words: list[str]):
    assert spawn.shebang(script(tmp_path / "s", text)) == words


def test_no_file_has_no_interpreter_line(tmp_path: Path):
    assert spawn.shebang(str(tmp_path)) == spawn.shebang(str(tmp_path / "no")) == []


def test_finding_as_exec_does(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    program = script(tmp_path / "bin" / "agent", "")
    script(tmp_path / "agent", "", 0o644)
    assert spawn.find("agent", f"/nope:{tmp_path}:{tmp_path}/bin", "/") == program
    assert spawn.find("agent", "bin", str(tmp_path)) == program
    assert spawn.find("agent", "/nope", "/") == "agent"
    assert spawn.find("./agent", "/nope", "/") == "./agent"


@pytest.mark.parametrize(
    ("stage", "number", "code", "says"),
    [
        ("cwd", errno.ENOENT, 126, "can't start in the folder /w: No such file"),
        ("cwd", errno.EACCES, 126, "can't start in the folder /w: Permission denied"),
        ("setup", errno.EPERM, 126, "can't prepare the start of {file}"),
        ("exec", errno.ENOEXEC, 126, "is not a program of this machine"),
        ("exec", errno.E2BIG, 126, "Argument list too long"),
        ("exec", errno.ENOENT, 127, "the loader it names is not"),
    ],
)
def test_the_cause_is_named(tmp_path: Path, stage: str, number: int, code: int, says: str):
    file = script(tmp_path / "agent", "binary")
    found = spawn.explain(stage, number, file, "/w")
    assert found.code == code and says.format(file=file) in found.reason


def test_an_interpreter_that_may_not_be_executed(tmp_path: Path):
    inner = script(tmp_path / "inner", "", 0o644)
    found = spawn.explain("exec", errno.EACCES, script(tmp_path / "a", f"#!{inner}\n"), "/")
    assert found == (126, f"{tmp_path}/a: its interpreter {inner} may not be executed")


@pytest.mark.parametrize("bound", [True, False])
def test_launching_in_a_program_of_its_own(tmp_path: Path, bound: bool):
    """Forking belongs to a process with one thread, as the shim is."""
    program = (
        f"bound = {bound}\n"
        "import os, signal, sys\n"
        "from handoff.process import spawn\n"
        "assert spawn.become_subreaper('a name longer than fifteen') == (sys.platform == 'linux')\n"
        "def launch(*words, **more): return spawn.launch(*words, bound=bound, **more)\n"
        "before, folder, umask = len(os.listdir('/proc/self/fd')), os.getcwd(), os.umask(0o077)\n"
        "gone = launch(['/nope'], '/', {}, 0o022)\n"
        "assert gone == (127, 'there is no program /nope'), gone\n"
        "gone = launch(['/bin/true'], '/nope', {}, 0o022)\n"
        'assert gone == (126, "can\'t start in the folder /nope: No such file or directory"), gone\n'
        "gone = launch(['/bin/true', 'a\\0b'], '/', {}, 0o022)\n"
        'assert gone == (126, "can\'t start /bin/true: Invalid argument"), gone\n'
        "os.symlink('/', 'link')\n"
        "gone = launch(['/bin/true'], os.path.abspath('link'), {}, 0o022, exact=True)\n"
        "assert gone.code == 126 and 'link' in gone.reason, gone\n"
        "try: os.waitpid(-1, 0)\n"
        "except ChildProcessError: pass\n"
        "else: raise AssertionError('a zombie')\n"
        "assert len(os.listdir('/proc/self/fd')) == before\n"
        "script = 'umask; pwd; read x; echo $x $A; echo ctl >&3; readlink /proc/$$/fd/* | wc -l'\n"
        "child = launch(['/bin/sh', '-c', script], '/usr', {'A': '1'}, 0o027, control=True)\n"
        "assert len(os.listdir('/proc/self/fd')) == before + 4\n"
        "assert (os.getcwd(), os.umask(0o077)) == (folder, 0o077)\n"
        "assert os.getsid(child.pid) == child.pid\n"
        "os.write(child.stdin, b'in\\n')\n"
        "pid, status = os.waitpid(child.pid, 0)\n"
        "print(os.read(child.stdout, 100), status, os.get_blocking(child.stdout))\n"
        "print(os.read(child.control, 100))\n"
        "print(open('/proc/self/comm').read())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**ENV, "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        timeout=15,
        check=False,
    )
    assert done.stdout.splitlines() == [
        rb"b'0027\n/usr\nin 1\n4\n' 0 False",
        rb"b'ctl\n'",
        b"a name longer t",
        b"",
    ], done.stderr
