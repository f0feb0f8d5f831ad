"""Secrets that tell themselves by their form: provider tokens and private key blocks.

Each shape has *anchors*, literal texts with which it starts. Candidates are found by
searching for the anchors (at the speed of ``str.find``) and judged one by one where they
stand, independent of each other: the time is linear, and it does not matter in which
pieces the text arrives. The search is for the forms of runs first, of which a text has few.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from handoff.redaction.runs import SHORTEST, Unwrapped, form
from handoff.redaction.view import View

#: characters that one finding, with all that decides about it, spans at most
REACH = 16_384
_RUN = 8_192


class Span(NamedTuple):
    """A finding: ``text[start:end]`` is secret. ``kind``: its class for the mark.
    ``value``: what the tag is made from."""

    start: int
    end: int
    kind: str
    value: str


class Shape(NamedTuple):
    """``anchors``: how it starts; ``pattern``: matched at an anchor. ``tail``: what the form
    of anything that it matches has after the anchor, at least. ``strict``: a letter or digit
    before the anchor speaks against it. ``mixed``: it needs a digit, since its letters alone
    could be words."""

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    tail: re.Pattern[bytes]
    strict: bool = True
    mixed: bool = False


def _shape(
    kind: str, anchors: str, tail: str, *, strict: bool = True, mixed: bool = False
) -> Shape:
    names = tuple(anchors.split())
    start = "|".join(re.escape(name) for name in names)
    whole = re.compile(f"(?:{start}){tail}")
    return Shape(kind, names, whole, re.compile(_least(tail).encode()), strict, mixed)


def _least(tail: str) -> str:
    """What a tail begins with at least: up to the first count that is open, whatever follows."""
    count = _COUNT.search(tail)
    if count is None:
        return _AHEAD.sub("", tail)
    return f"{tail[: count.start()]}{{{count[1]}}}"


_COUNT = re.compile(r"\{([0-9]+),[0-9]+\}")
_AHEAD = re.compile(r"\(\?!\[[^]]*\]\)")

_W = "[A-Za-z0-9_-]"  # the URL-safe alphabet of base64
_A = "[A-Za-z0-9]"
_HEX = "[0-9a-fA-F]"
_END = "(?![A-Za-z0-9])"

SHAPES: tuple[Shape, ...] = (
    _shape("aws-access-key", "AKIA ASIA ABIA ACCA", f"[A-Z0-9]{{16}}{_END}"),
    _shape("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", f"{_A}{{20,{_RUN}}}", strict=False),
    _shape("github-token", "github_pat_", f"[A-Za-z0-9_]{{20,{_RUN}}}", strict=False),
    _shape(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- gloas- GR1348941",
        f"[A-Za-z0-9_.-]{{20,{_RUN}}}",
        strict=False,
    ),
    _shape("anthropic-key", "sk-ant-", f"{_W}{{16,{_RUN}}}"),
    _shape("openrouter-key", "sk-or-v1-", f"{_HEX}{{32,{_RUN}}}{_END}"),
    _shape("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", f"{_W}{{16,{_RUN}}}"),
    _shape("api-key", "sk-", f"{_W}{{16,{_RUN}}}", mixed=True),
    _shape(
        "stripe-key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        f"[A-Za-z0-9+/]{{10,{_RUN}}}={{0,2}}",
    ),
    _shape(
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxe.xoxb- xoxe.xoxp- xapp- xwfp-",
        f"[A-Za-z0-9-]{{10,{_RUN}}}",
    ),
    _shape(
        "slack-webhook",
        "hooks.slack.com/services/ hooks.slack.com/workflows/",
        f"[A-Za-z0-9+/_-]{{20,{_RUN}}}",
    ),
    _shape(
        "discord-webhook",
        "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
        f"[0-9]{{6,30}}/{_W}{{20,{_RUN}}}",
    ),
    _shape("google-api-key", "AIza", f"{_W}{{35,{_RUN}}}"),
    _shape("google-oauth", "GOCSPX-", f"{_W}{{20,{_RUN}}}"),
    _shape("google-oauth", "ya29.", f"{_W}{{20,{_RUN}}}"),
    _shape("npm-token", "npm_", f"{_A}{{30,{_RUN}}}"),
    _shape("pypi-token", "pypi-", f"{_W}{{40,{_RUN}}}", mixed=True),
    _shape("huggingface-token", "hf_ api_org_", f"{_A}{{30,{_RUN}}}"),
    _shape("sendgrid-key", "SG.", rf"{_W}{{16,64}}\.{_W}{{16,{_RUN}}}"),
    _shape("mailgun-key", "key-", f"[0-9a-f]{{32}}{_END}"),
    _shape("twilio-key", "SK", f"[0-9a-f]{{32}}{_END}"),
    _shape("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", f"[0-9a-f]{{40,{_RUN}}}{_END}"),
    _shape("shopify-token", "shpat_ shpca_ shppa_ shpss_", f"{_HEX}{{32,{_RUN}}}{_END}"),
    _shape("square-token", "sq0atp- sq0csp- sq0idp-", f"{_W}{{20,{_RUN}}}"),
    _shape("jwt", "eyJ", rf"{_W}{{8,{_RUN // 2}}}(?:\.{_W}{{4,{_RUN // 2}}}){{1,4}}"),
    _shape("age-key", "AGE-SECRET-KEY-1", f"[A-Z0-9]{{50,{_RUN}}}"),
    _shape("vault-token", "hvs. hvb. hvr.", f"{_W}{{20,{_RUN}}}"),
    _shape("linear-key", "lin_api_ lin_oauth_", f"{_A}{{30,{_RUN}}}"),
    _shape("notion-key", "ntn_ secret_", f"{_A}{{40,{_RUN}}}"),
    _shape(
        "planetscale-token",
        "pscale_tkn_ pscale_pw_ pscale_oauth_",
        f"[A-Za-z0-9_.-]{{32,{_RUN}}}={{0,2}}",
    ),
    _shape("databricks-token", "dapi", f"[0-9a-f]{{32}}(?:-[0-9])?{_END}"),
    _shape("newrelic-key", "NRAK- NRAL- NRII- NRIQ-", f"{_W}{{20,{_RUN}}}", mixed=True),
    _shape("grafana-token", "glsa_ glc_", f"[A-Za-z0-9+/_]{{30,{_RUN}}}={{0,2}}"),
    _shape("sentry-token", "sntrys_ sntryu_", f"[A-Za-z0-9+/_-]{{30,{_RUN}}}={{0,2}}"),
    _shape("postman-key", "PMAK-", f"{_HEX}{{24}}-{_HEX}{{34}}"),
    _shape("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa.", f"[A-Za-z0-9._-]{{30,{_RUN}}}"),
    _shape("supabase-key", "sbp_ sb_secret_", f"{_W}{{20,{_RUN}}}", mixed=True),
    _shape("groq-key", "gsk_", f"{_A}{{40,{_RUN}}}"),
    _shape("xai-key", "xai-", f"{_A}{{40,{_RUN}}}"),
    _shape("perplexity-key", "pplx-", f"{_A}{{40,{_RUN}}}"),
    _shape("replicate-token", "r8_", f"{_A}{{30,{_RUN}}}"),
    _shape("nvidia-key", "nvapi-", f"{_W}{{40,{_RUN}}}"),
    _shape("figma-token", "figd_", f"{_W}{{30,{_RUN}}}"),
    _shape("docker-token", "dckr_pat_ dckr_oat_", f"{_W}{{20,{_RUN}}}"),
    _shape("rubygems-key", "rubygems_", f"[0-9a-f]{{40,{_RUN}}}{_END}"),
    _shape("crates-token", "cio", f"{_A}{{32}}{_END}", mixed=True),
    _shape("atlassian-token", "ATATT3", f"[A-Za-z0-9_-]{{50,{_RUN}}}(?:=[0-9A-F]{{8}}|={{0,2}})"),
    _shape("bitbucket-token", "ATBB", f"[A-Za-z0-9_-]{{24,{_RUN}}}={{0,2}}", mixed=True),
    _shape("pulumi-token", "pul-", f"[0-9a-f]{{40}}{_END}"),
    _shape("brevo-key", "xkeysib- xsmtpsib-", f"{_W}{{40,{_RUN}}}"),
    _shape("alibaba-key", "LTAI", f"{_A}{{12,30}}{_END}", mixed=True),
    _shape("tencent-key", "AKID", f"{_A}{{20,48}}{_END}", mixed=True),
    _shape("buildkite-token", "bkua_", f"[0-9a-f]{{40}}{_END}"),
    _shape("circleci-token", "CCIPAT_ CCIPRJ_", f"[A-Za-z0-9_]{{30,{_RUN}}}"),
    _shape("artifactory-key", "AKCp cmVmdGtuO", f"{_A}{{50,{_RUN}}}"),
    _shape("terraform-token", ".atlasv1.", f"{_W}{{50,{_RUN}}}", strict=False),
    _shape("dropbox-token", "sl.u. sl.B", f"{_W}{{60,{_RUN}}}"),
    _shape("facebook-token", "EAACEdEose0cBA EAAG EAAB EAAJ", f"{_A}{{60,{_RUN}}}"),
    _shape("telegram-token", ":AA", f"{_W}{{33}}(?!{_W})", strict=False),
)
# Where two shapes start with the same letters, the one with the longer anchor is the finer.
_ANCHORS = sorted(
    ((anchor, shape) for shape in SHAPES for anchor in shape.anchors),
    key=lambda pair: -len(pair[0]),
)

# (anchor, its form, the forms of longer ones that start with it, its shape)
_SOUGHT = [
    (
        anchor,
        form(anchor.encode()),
        frozenset(
            form(longer.encode())
            for longer, _ in _ANCHORS
            if form(longer.encode()).startswith(form(anchor.encode()))
            and form(longer.encode()) != form(anchor.encode())
        ),
        shape,
    )
    for anchor, shape in _ANCHORS
]
# One search for all that start with the same letter, the longest first. (It takes less time
# than one for a single anchor.)
_BY_LETTER = [
    (
        letter,
        re.compile(
            re.escape(letter)
            + b"(?=("
            + b"|".join(re.escape(one[1:]) for _, one, _, _ in _SOUGHT if one[:1] == letter)
            + b"))"
        ),
    )
    for letter in sorted({one[:1] for _, one, _, _ in _SOUGHT})
]
# Bytes below which looking for each anchor by itself takes less time.
_FEW = 2048

# What precedes the anchor in these two belongs to the secret.
_BEFORE = {
    "telegram-token": re.compile(r"[0-9]{8,10}\Z"),
    "terraform-token": re.compile(r"[A-Za-z0-9]{14}\Z"),
}

_KEY_START = "-----BEGIN "
_KEY_HEAD = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
KEY_END = re.compile(r"-----END [A-Z0-9 ]{1,60}-----")
# The lines of a key without its end: base64, whatever separates the lines.
_KEY_LINES = re.compile(
    r"(?:(?:\\[nr]|[ \t\r\n>|+\"',]){1,40}(?:[A-Za-z-]{3,20}: [^\n\\]{1,200}|[A-Za-z0-9+/=]{16,200}))"
    r"{1,120}"
)
_KEY_MAX = REACH - 512


def occurrences(text: str, needle: str) -> Iterator[int]:
    """Where needle stands, overlapping places included."""
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def boundary(text: str, at: int) -> bool:
    """Whether something may start at ``at``: no letter or digit before it, or one that is
    the end of an escape (a line feed in JSON, an equals sign in a URL)."""
    if at == 0 or not (text[at - 1].isalnum()):
        return True
    if at >= 2 and text[at - 2] == "\\" and text[at - 1] in "nrt":
        return True
    return at >= 3 and text[at - 3] == "%"


def find_shapes(view: View) -> list[Span]:
    """All provider tokens and private keys, also those broken over line ends."""
    text = view.text
    if len(text) < SHORTEST:
        return []
    found = list(_private_keys(text))
    forms, anchors = _suspects(view.joined)
    if forms:
        found += (span for span, _ in _tokens(text, view.runs_of(forms), anchors))
    if view.unbroken or view.broken is None:
        return found
    forms, anchors = _suspects(view.broken.joined)
    for flat in view.broken.of(forms):
        found += _broken(flat, anchors)
    # Where no form is like a token, none will be after more of the text was blotted out.
    view.unbroken = not forms
    return found


def _broken(flat: Unwrapped, anchors: list[tuple[str, Shape]]) -> Iterator[Span]:
    """The tokens that are broken over line ends, in one reading of one run."""
    for span, shape in _tokens(flat.text, [flat.run], anchors):
        end = _end_of_broken(flat, span, shape)
        if end:
            first, last = flat.place(span.start), flat.place(end - 1) + 1
            if last - first <= REACH // 2:
                value = flat.text[span.start : end]
                yield Span(first, last, span.kind, value)


def _suspects(joined: bytes) -> tuple[set[bytes], list[tuple[str, Shape]]]:
    """The forms of runs in which something stands that may be a token, and the anchors that
    it may start with, those of finer shapes first."""
    forms: set[bytes] = set()
    anchors = []
    for anchor, sought, shape in _present(joined):
        at = joined.find(sought)
        there = False
        while at >= 0:
            end = at + len(sought)
            if shape.tail.match(joined, end) is None:
                at = joined.find(sought, at + 1)
                continue
            there = True
            stop = joined.find(b"\n", end)
            forms.add(joined[joined.rfind(b"\n", 0, at) + 1 : stop])
            at = joined.find(sought, stop)
        if there:
            anchors.append((anchor, shape))
    return forms, anchors


def _present(joined: bytes) -> list[tuple[str, bytes, Shape]]:
    """The anchors whose forms stand in any of these, with their forms, those of finer
    shapes first."""
    if not joined:
        return []
    if len(joined) < _FEW:
        return [(anchor, sought, shape) for anchor, sought, _, shape in _SOUGHT if sought in joined]
    there: set[bytes] = set()
    for letter, pattern in _BY_LETTER:
        there.update(letter + rest for rest in set(pattern.findall(joined)))
    return [
        (anchor, sought, shape)
        for anchor, sought, longer, shape in _SOUGHT
        if sought in there or not longer.isdisjoint(there)
    ]


def _end_of_broken(flat: Unwrapped, span: Span, shape: Shape) -> int:
    """Where a token that was found across line ends stops: the words of the text that
    goes on below are not part of it. 0 if it stops before its first line end, where it is
    found as it is."""
    end = span.end
    while last := flat.last_break(span.start, end):
        part = flat.text[last:end]
        line_ends = end == len(flat.text) or flat.text[end] in "\r\n" or flat.breaks_at(end)
        digit = any(c.isdigit() for c in part)
        if (digit and (line_ends or len(part) >= 6)) or (line_ends and len(part) >= 16):
            return end
        whole = shape.pattern.search(flat.text, span.start, last)
        if whole is None or whole.end() != last:
            return end
        end = last
    return 0


def _tokens(
    text: str, runs: list[tuple[int, int]], anchors: list[tuple[str, Shape]]
) -> Iterator[tuple[Span, Shape]]:
    """The tokens inside of these runs of token characters that start with these anchors.
    (All runs are searched as one text: a search for each anchor in each run would take most
    of the time.)"""
    joined = "\n".join([text[start:end] for start, end in runs])
    places = list(accumulate((end - start + 1 for start, end in runs), initial=0))
    taken: set[int] = set()
    for anchor, shape in anchors:
        run = 0
        for joined_at in occurrences(joined, anchor):
            number = bisect_right(places, joined_at) - 1
            at = runs[number][0] + joined_at - places[number]
            # Inside of what was just matched another one could only end where that did.
            if at < run or at in taken or (shape.strict and not boundary(text, at)):
                continue
            if shape.kind == "jwt" and at and text[at - 1] in "-_":
                continue  # inside of a run that was looked through from its start
            match = shape.pattern.match(text, at)
            if match is None:
                continue
            run = match.end()
            start, value = at, match.group()
            if shape.mixed and not any(map(str.isdigit, value[len(anchor) :])):
                continue
            before = _BEFORE.get(shape.kind)
            if before is not None:
                head = before.search(text[max(0, at - 16) : at])
                if head is None or not boundary(text, at - len(head.group())):
                    continue
                start -= len(head.group())
                value = head.group() + value
            taken.add(at)
            yield Span(start, match.end(), shape.kind, value), shape


def _private_keys(text: str) -> Iterator[Span]:
    for at in occurrences(text, _KEY_START):
        head = _KEY_HEAD.match(text, at)
        if head is None:
            continue
        stop = text.find("-----END ", head.end(), at + _KEY_MAX)
        match = KEY_END.match(text, stop) if stop >= 0 else None
        if match is None:
            lines = _KEY_LINES.match(text, head.end(), at + _KEY_MAX)
            if lines is None:
                continue  # the words alone, as in a program that looks for keys
            end = lines.end()
        else:
            end = match.end()
        yield Span(at, end, "private-key", text[head.end() : end])
