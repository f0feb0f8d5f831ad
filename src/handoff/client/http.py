"""Calls to one agentd: JSON in and out, typed errors, nothing done twice.

A call that changes something carries a key. If its answer is lost, the same call is sent
again with the same key, and agentd repeats its answer instead of its deed.
"""

from __future__ import annotations

import json
import os
import time

from handoff.client.connection import (
    ANSWER_S,
    IDLE_S,
    Lost,
    Response,
    error_of,
    exchange,
    query_text,
    quote,
)
from handoff.clock import uuid4_text
from handoff.errors import OutcomeUnknown, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from handoff.client.endpoint import Endpoint

__all__ = ["ANSWER_S", "IDLE_S", "Client", "Lost", "Response", "quote"]

#: seconds to go on asking for the outcome of a call whose answer was lost (agentd restarts)
RETRY_S = 15.0


class Client:
    """Calls to one agentd.

    Args:
        locate: finds agentd; asked again when a connection is lost, because a restarted
            agentd may listen elsewhere.
        sleep, monotonic: time, for tests.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        retry_s: float = RETRY_S,
    ) -> None:
        self.locate = locate
        self.endpoint = locate()
        self._sleep = sleep
        self._monotonic = monotonic
        self._retry_s = retry_s

    def get(
        self, path: str, query: dict[str, Any] | None = None, *, answer_s: float = ANSWER_S
    ) -> Any:
        """The JSON answer of a GET. Asked again while agentd restarts.

        Raises:
            HandoffError: what agentd answered; Unreachable if it does not answer.
        """
        response = self.open("GET", path, query, answer_s=answer_s)
        try:
            return response.json()
        except (Lost, TimeoutError) as error:
            raise Unreachable(
                f"agentd's answer was cut off: {error}", remedy=self.endpoint.remedy
            ) from error
        finally:
            response.close()

    def post(
        self,
        path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, Any] | None = None,
        *,
        look: str = "handoff tasks",
        answer_s: float = ANSWER_S,
        method: str = "POST",
    ) -> Any:
        """The JSON answer of a call that changes something; carried out at most once.

        If the answer is lost, the same call is sent again with the same key: agentd then
        repeats its answer instead of its deed.

        ``look`` is the command that shows whether it was carried out.

        Raises:
            OutcomeUnknown: sent, and no answer came.
        """
        response = self.open(method, path, query, body or {}, look=look, answer_s=answer_s)
        try:
            return response.json()
        except (Lost, TimeoutError) as error:
            raise self._unknown(str(error), look) from error
        finally:
            response.close()

    def delete(self, path: str, *, look: str) -> Any:
        """The JSON answer of a DELETE."""
        return self.post(path, look=look, method="DELETE")

    def open(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        *,
        look: str = "handoff tasks",
        answer_s: float = ANSWER_S,
        persist: bool = True,
    ) -> Response:
        """Send a request and return its answer, unread, with a status below 400.

        ``persist`` False: a lost connection is raised as Lost at once.
        """
        changes = method != "GET"
        key = uuid4_text(os.urandom(16)) if changes else ""
        raw = json.dumps(body).encode() if body is not None else None
        target = path + query_text(query)
        until: float | None = None
        delay = 0.05
        why = ""
        while True:
            try:
                response = exchange(
                    self.endpoint, method, target, body=raw, key=key, answer_s=answer_s
                )
            except TimeoutError:
                why = f"no answer within {answer_s:g} s"
                if changes:
                    raise self._unknown(why, look) from None
                raise Unreachable(f"agentd gives {why}", remedy=self.endpoint.remedy) from None
            except Lost as lost:
                if not persist:
                    raise
                why = str(lost) or "the connection was lost"
                until = until or self._monotonic() + self._retry_s
            except Unreachable as error:
                if until is None:
                    raise
                why = error.cause
            else:
                if response.status < 400:
                    return response
                try:
                    raise error_of(response)
                finally:
                    response.close()
            if self._monotonic() + delay > until:
                if changes:
                    raise self._unknown(why, look)
                raise Unreachable(f"agentd does not answer: {why}", remedy=self.endpoint.remedy)
            self._sleep(delay)
            delay = min(delay * 2, 1.0)
            self.relocate()

    def relocate(self) -> None:
        """Look again where agentd is; keeps the old place if there is no new one."""
        try:
            self.endpoint = self.locate()
        except Unreachable:
            pass  # between two agentds there is none: the old address is as good as any

    def _unknown(self, why: str, look: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the call was sent, but {why}: it may or may not have been carried out", remedy=look
        )
