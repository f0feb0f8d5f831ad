"""The page's back end, as Hermes mounts it: ``POST /api/plugins/hermes-handoff/call``.

The host loads this file alone, outside of any package, and guards the route with its own
credential. The plugin that it belongs to is the folder above: the one that the host has
loaded already, or else loaded here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

__all__ = ["router"]

_HERE = Path(__file__).resolve().parent.parent
#: what the plugin is called where the host has not loaded it
_NAME = "hermes_handoff_page"


def _plugin() -> str:
    """The name under which the plugin's package is loaded."""
    init = _HERE / "__init__.py"
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and Path(path).resolve() == init:
            return name
    spec = importlib.util.spec_from_file_location(
        _NAME, init, submodule_search_locations=[str(_HERE)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{init} can't be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_NAME]
        raise
    return _NAME


_package = _plugin()
_desk = importlib.import_module(f"{_package}.desk").Desk(
    importlib.import_module(f"{_package}.runtime").Runtime()
)
# By name, since only the host has it.
_fastapi: Any = importlib.import_module("fastapi")
_threads: Any = importlib.import_module("fastapi.concurrency")
Request: Any = _fastapi.Request
router = _fastapi.APIRouter()


@router.post("/call")  # type: ignore[untyped-decorator]
async def call(request: Request) -> Any:
    """One action of the page. The answer is always 200 with ``ok``: a refusal is an answer."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LIMIT:
            break
    return await _threads.run_in_threadpool(_desk.answer, bytes(body))


_LIMIT: int = importlib.import_module(f"{_package}.desk").BODY_MAX
