"""Starting one process of an executor for a task."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

from handoff.agentd.services import Services, make_private
from handoff.config import Config
from handoff.errors import ExecutorMissing
from handoff.executors.contract import Driver, LaunchRequest, Session
from handoff.executors.turn import instructions
from handoff.process import envfile, pathenv, supervisor
from handoff.process.contract import Shim, Spec
from handoff.store.records import RunRow, TaskRow

#: variables of ours or of an agent that runs us, which no executor should inherit
NOT_INHERITED = frozenset(
    {"HANDOFF_CONFIG", "HANDOFF_HOME", "HANDOFF_CRASH_AT", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"}
)

#: processes of one task, unless configured: a build with many sub-agents stays below it
TASK_PROCS = 1200


class Started(NamedTuple):
    """A process that runs. ``facts``: ``path`` of its program, ``version`` if known."""

    shim: Shim
    driver: Driver
    session: Session
    facts: dict[str, str]


async def launch_run(services: Services, task: TaskRow, run: RunRow) -> Started:
    """Start the run's process, or find it started already.

    Raises:
        ExecutorMissing: its program is not there.
        ConfigError: its environment file can't be used.
        ExecutorGone: it was started before and has died since.
        HandoffError: the shim could not be started.
    """
    executor = services.executors.get(task.executor)
    added = executor_env(services, task.executor)
    program = find_program(services, task.executor)
    data_dir = services.places.data_dir
    scratch = make_private(services.places.scratch(task.id), data_dir)
    standing = instructions(task.id, task.branch, executor.definition.question_tool)
    request = LaunchRequest(
        program=program,
        cwd=task.work_dir,
        scratch=str(scratch),
        new_id=run.id,
        model=task.model or None,
        resume=task.session_id or None,
        instructions=standing,
        env=added,
    )
    launch = executor.launch(request)
    for name, text in launch.files.items():
        write_private(os.path.join(scratch, name), text)
    env = {k: v for k, v in services.environ.items() if k not in NOT_INHERITED}
    env["PATH"] = services.search_path
    env.update(added)
    env.update(launch.env)
    for name in launch.unset:
        env.pop(name, None)
    run_dir = make_private(services.places.run_dir(task.id, run.id), data_dir)
    spec = Spec(
        run_id=run.id,
        argv=launch.argv,
        cwd=task.work_dir,
        env=env,
        max_procs=process_limit(services.config),
    )
    shim = await supervisor.start(run_dir, spec)
    session = Session(
        cwd=task.work_dir,
        new_id=run.id,
        resume=task.session_id or None,
        model=task.model or None,
        instructions="" if launch.instructed else standing,
    )
    return Started(shim, executor.driver(), session, {"path": program})


def process_limit(config: Config) -> int:
    """How many processes one task may have; 0 = any number.

    Unless configured: what the user may have less the share kept free, and at most
    :data:`TASK_PROCS`. A limit of the user's that is none leaves that bound alone.
    """
    if config.limits.procs:
        return config.limits.procs
    if config.proc_fence.disabled:
        return 0
    allowed, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if allowed in (resource.RLIM_INFINITY, -1):
        return TASK_PROCS
    free = max(int(allowed * config.proc_fence.reserve_ratio), 200)
    return max(min(TASK_PROCS, allowed - free), 50)


def executor_env(services: Services, name: str) -> dict[str, str]:
    """The variables of the executor's environment file, {} if it has none.

    Raises:
        ConfigError: the file is missing or has a fault; names its line.
    """
    file_name = services.config.env.get(name)
    if not file_name:
        return {}
    return envfile.load(services.places.env_dir, file_name, services.environ).values


def find_program(services: Services, name: str) -> str:
    """The absolute path of the executor's program.

    Raises:
        ExecutorMissing: it, or the interpreter it names, is not there.
    """
    executor = services.executors.get(name)
    missing: ExecutorMissing | None = None
    for program in executor.programs:
        try:
            found = pathenv.find_program(program, services.search_path)
            pathenv.check_program(found, services.search_path)
        except ExecutorMissing as error:
            missing = missing or error
        else:
            return found
    names = " or ".join(executor.programs) or "it"
    if missing is None or (len(executor.programs) == 1 and "/" in names):
        raise missing or ExecutorMissing(f"executor '{name}' has no program")
    raise ExecutorMissing(
        f"executor '{name}': {missing.cause}", remedy=missing.remedy or "handoff doctor"
    )


def write_private(path: str, text: str) -> None:
    """Write a file that only its owner can read, replacing what was there."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    os.replace(path + ".new", path)
