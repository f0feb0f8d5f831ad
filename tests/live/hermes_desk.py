"""Hermes' own back end with our page in it, and a stand-in for its Desktop application.

The application itself is on no registry, and is never started by a test: what it does beyond
its published SDK (copying and enabling a plugin, its composer, its windows) is not covered.
A stand-in for that SDK lies in a copy of our own plugin's folder, of the same origin as the
real back end; it loads the unmodified desktop/plugin.js, whose requests go to the real REST
and WebSocket routes. React is the host's, from its dashboard.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

from tests.live.fence import end, fenced
from tests.live.hermes_host import HermesHome, venv
from tests.support.waiting import until

TOKEN = "desk-token-for-tests-only"
PATH = "/api/plugins/hermes-handoff/call"

SDK = """
const desk = window.__desk;
export const ROUTES_AREA = 'routes', SIDEBAR_NAV_AREA = 'sidebarNav';
export const host = desk.host;
"""
REACT = """
const React = window.__HERMES_PLUGIN_SDK__.React;
export default React;
export const {createElement, Fragment, useState, useEffect, useMemo, useRef} = React;
"""
#: the stand-in. Focus and faults are the test's: window.__desk
HARNESS = """
(() => {
  const TOKEN = %(token)s;
  const base = document.currentScript.src;
  const React = window.__HERMES_PLUGIN_SDK__.React;
  const map = document.createElement('script');
  map.type = 'importmap';
  map.textContent = JSON.stringify({imports: {
    '@hermes/plugin-sdk': new URL('sdk.mjs', base).href, 'react': new URL('react.mjs', base).href}});
  document.head.append(map);

  const atom = (value) => {
    const heard = new Set();
    return {get: () => value, set(now) { value = now; heard.forEach((one) => one(now)); },
      subscribe(one) { heard.add(one); one(value); return () => heard.delete(one); }};
  };
  const kept = JSON.parse(localStorage.getItem('desk.focus') || 'null') || {};
  const state = {focusedSessionId: atom(kept.runtime || null), focusedStoredSessionId: atom(kept.stored || null),
    focusedSessionProfile: atom('default'), focusedSessionOwner: atom({connectionId: 'local', profile: 'default'}),
    connectionId: atom('local'), profile: atom('default'), gateway: atom('connecting'), busy: atom(false),
    busyBySession: atom({}), awaitingResponse: atom(false), cwd: atom('')};
  const waiting = new Map();
  let number = 0;
  const url = new URL('/api/ws?token=' + TOKEN, location.href);
  url.protocol = 'ws:';
  const socket = new WebSocket(url);
  const opened = new Promise((done) => { socket.onopen = () => { state.gateway.set('open'); done(); }; });
  const mark = (id, value) => state.busyBySession.set({...state.busyBySession.get(), [id]: value});
  socket.onmessage = (message) => {
    const frame = JSON.parse(message.data);
    if (frame.method === 'event') {
      const {type, session_id: id} = frame.params;
      if (type === 'message.start') mark(id, true);
      if (type === 'message.complete' || type === 'error') mark(id, false);
      return;
    }
    const wait = waiting.get(frame.id);
    if (!wait) return;
    waiting.delete(frame.id);
    if (frame.error) wait.fail(Object.assign(new Error(frame.error.message), {code: frame.error.code}));
    else wait.done(frame.result);
  };
  const request = async (method, params) => {
    desk.sent.push({method, params});
    localStorage.setItem('desk.sent', JSON.stringify([...JSON.parse(localStorage.getItem('desk.sent') || '[]'), method]));
    const fault = desk.faults[method];
    if (fault && fault.before) throw Object.assign(new Error(fault.before), {code: fault.code});
    await opened;
    const id = ++number;
    const answer = new Promise((done, fail) => waiting.set(id, {done, fail}));
    socket.send(JSON.stringify({jsonrpc: '2.0', id, method, params}));
    const found = await answer;
    if (fault && fault.after) throw new Error(fault.after);
    if (fault && fault.hang) await new Promise(() => {});
    return found;
  };
  const desk = window.__desk = {state, request, faults: {}, sent: [], opened: [], registered: [],
    host: {state, request, profileRoutes: async () => desk.routes,
      openSession: async (id) => { desk.opened.push(id); }},
    routes: [{connectionId: 'local', profile: 'default', targetProfile: 'default', mode: 'local'}],
    focus(runtime, stored) {
      localStorage.setItem('desk.focus', JSON.stringify({runtime, stored}));
      state.focusedSessionId.set(runtime);
      state.focusedStoredSessionId.set(stored);
    }};
  const prefix = 'hermes.plugin.hermes-handoff.';
  const ctx = {
    register: (one) => { desk.registered.push(one); return () => {}; },
    rest: async (path, {method, body}) => {
      const fault = desk.faults[body.action];
      if (fault && fault.before) throw new Error(fault.before);
      const reply = await fetch('/api/plugins/hermes-handoff' + path, {method,
        headers: {'Content-Type': 'application/json', 'X-Hermes-Session-Token': TOKEN}, body: JSON.stringify(body)});
      if (!reply.ok) throw new Error('HTTP ' + reply.status);
      const found = await reply.json();
      if (fault && fault.after) throw new Error(fault.after);
      if (fault && fault.hang) await new Promise(() => {});
      return found;
    },
    storage: {
      get: (key, otherwise) => { const found = localStorage.getItem(prefix + key); return found === null ? otherwise : JSON.parse(found); },
      set: (key, value) => { if (desk.faults.storage) throw new Error('quota'); localStorage.setItem(prefix + key, JSON.stringify(value)); },
      remove: (key) => localStorage.removeItem(prefix + key),
    },
  };
  const loaded = import(new URL('plugin.js', base).href).then((found) => {
    desk.plugin = {id: found.default.id, defaultEnabled: found.default.defaultEnabled};
    found.default.register(ctx);
    return desk.registered.find((one) => one.area === 'routes');
  });
  function Stage() {
    const [route, setRoute] = React.useState(null);
    React.useEffect(() => { loaded.then(setRoute, (error) => { desk.failed = String(error); }); }, []);
    return route ? route.render() : null;
  }
  window.__HERMES_PLUGINS__.register('hermes-handoff', Stage);
})();
"""


def with_harness(plugin: pathlib.Path, dest: pathlib.Path) -> pathlib.Path:
    """A copy of the plugin's directory whose dashboard page is the stand-in."""
    shutil.copytree(plugin, dest)
    folder = dest / "dashboard"
    shutil.copy(dest / "desktop" / "plugin.js", folder / "plugin.js")
    (folder / "sdk.mjs").write_text(SDK)
    (folder / "react.mjs").write_text(REACT)
    (folder / "harness.js").write_text(HARNESS % {"token": json.dumps(TOKEN)})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["entry"] = "harness.js"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return dest


class Back:
    """The running back end. ``url``: its address."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = process

    def post(self, body: bytes, token: str = TOKEN) -> tuple[int, Any]:
        """The status and the answer to a request of the page's."""
        request = urllib.request.Request(
            self.url + PATH,
            data=body,
            method="POST",
            headers={"X-Hermes-Session-Token": token, "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def call(self, action: str, **given: Any) -> Any:
        status, answer = self.post(json.dumps({"action": action, "arguments": given}).encode())
        assert status == 200, answer
        return answer


@contextlib.contextmanager
def dashboard(host: HermesHome) -> Iterator[Back]:
    """``hermes dashboard`` of that home, ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**host.env, "HERMES_DASHBOARD_SESSION_TOKEN": TOKEN}
    if host.release == "0.22":  # its distribution has no pages of its own
        pages = next(venv("0.19").glob("lib/python3*/site-packages/hermes_cli/web_dist"))
        env["HERMES_WEB_DIST"] = str(pages)
    log = host.top / "dashboard.log"
    argv = [str(host.venv / "bin" / "hermes"), "dashboard", "--no-open", "--skip-build"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            fenced([*argv, "--host", "127.0.0.1", "--port", str(port)]),
            cwd=host.work,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )

    def ready() -> bool:
        text = log.read_text("utf-8", "replace")
        assert process.poll() is None, text[-3000:]
        return bool(re.search(rf"HERMES_\w+_READY port={port}", text))

    try:
        until(ready, "the back end is ready", within=90)
        yield Back(port, process)
    finally:
        end(process)
