"""Suite B: which secrets are found in which contexts, and which facts stay.

Formats are split: a format whose prefix the redactor knows is *known*, every other one is
*held out*, and the gates of the keyed and structural cells are held by held-out formats
alone. The split is computed from the redactor's own list, so it can't be forgotten.
"""

from __future__ import annotations

import base64
import string
import textwrap
from typing import NamedTuple

from handoff.redaction.shapes import SHAPES
from handoff.sessions.bench import Metric
from handoff.sessions.bench.chance import Chance
from handoff.sessions.redact import SessionRedactor

_ALNUM = string.ascii_letters + string.digits
_LOWER = string.ascii_lowercase + string.digits
_HEX = "0123456789abcdef"
_URL64 = _ALNUM + "-_"


class Format(NamedTuple):
    """How a kind of token looks: prefix, alphabet, length of the rest."""

    prefix: str
    alphabet: str
    length: int


#: with a prefix of their own
PREFIXED: tuple[Format, ...] = (
    Format("ghp_", _ALNUM, 36), Format("gho_", _ALNUM, 36), Format("github_pat_", _ALNUM, 70),
    Format("glpat-", _URL64, 20), Format("AKIA", string.ascii_uppercase + "234567", 16),
    Format("ASIA", string.ascii_uppercase + "234567", 16), Format("sk-ant-api03-", _URL64, 90),
    Format("sk-proj-", _ALNUM, 48), Format("xoxb-", string.digits, 24), Format("npm_", _ALNUM, 36),
    Format("pypi-AgEIcHlwaS5vcmc", _URL64, 60), Format("hf_", string.ascii_letters, 34),
    Format("AIza", _URL64, 35), Format("GOCSPX-", _URL64, 28), Format("sk_live_", _ALNUM, 24),
    Format("rk_live_", _ALNUM, 24), Format("dop_v1_", _HEX, 64), Format("shpat_", _HEX, 32),
    Format("lin_api_", _ALNUM, 40), Format("glsa_", _ALNUM, 41), Format("hvs.", _URL64, 60),
    Format("figd_", _URL64, 40), Format("dckr_pat_", _URL64, 27), Format("gsk_", _ALNUM, 52),
    Format("nvapi-", _URL64, 64), Format("rubygems_", _HEX, 48), Format("pul-", _HEX, 40),
    Format("PMAK-" + "0a" * 12 + "-", _HEX, 34), Format("sntrys_", _ALNUM, 60),
)  # fmt: skip

#: without one, or with one that the redactor does not know
HELD_OUT: tuple[Format, ...] = (
    Format("", _HEX, 32), Format("", _HEX, 40), Format("", _LOWER, 24), Format("", _LOWER, 32),
    Format("", _ALNUM, 20), Format("", _ALNUM, 32), Format("", _ALNUM, 40), Format("", _ALNUM, 64),
    Format("", _URL64, 43), Format("", string.ascii_uppercase + string.digits, 32),
    Format("tk-", _LOWER, 30), Format("acct_", _ALNUM, 24), Format("zz_live_", _ALNUM, 28),
    Format("v4.local.", _URL64, 60), Format("mt0-", _HEX, 40), Format("QK", _ALNUM, 30),
    Format("cust-", _HEX, 32), Format("api1.", _ALNUM, 28), Format("edge_", _LOWER, 36),
    Format("0x", _HEX, 40), Format("usr:", _ALNUM, 24), Format("oat_", _URL64, 32),
)  # fmt: skip

KEYED = {
    "env": "SERVICE_TOKEN={}",
    "export": "export SERVICE_SECRET='{}'",
    "json": '{{"x_api_key": "{}"}}',
    "yaml": "x_secret: {}",
    "toml": 'auth_token = "{}"',
    "ini": "password = {}",
    "camel": 'serviceApiToken = "{}"',
    "suffix": "DB_PASSWORD_2={}",
    "header": "X-Api-Key: {}",
    "netrc": "machine x.example login me password {}",
    "npmrc": "//npm.example/:_authToken={}",
    "authorization": "Authorization: Bearer {}",
}
STRUCTURAL = {
    "userinfo": "https://me:{}@db.example/x",
    "query": "https://x.example/y?access_token={}&page=2",
    "option": "deploy --api-token {} --force",
    "login": "curl -u me:{} https://x.example",
    "cookie": "Cookie: session={}; theme=dark",
}
UNKEYED = {
    "prose": "then it worked with {} again",
    "cell": "| name | {} |",
    "fence": "```\n{}\n```",
    "log": "12:00:01 INFO got {} from peer",
    "base64": "{b64}",
    "wrapped": "{wrapped}",
    "path": "https://x.example/hook/{}",
}
PROSE = (
    "the password is {}", "our secret was {}", "use token {} for the staging host",
    "the API key {} works", "password: {}", "{} is the token", "log in with the passphrase {}",
    "the secret key is now {}", "credentials: {}", "I set the access key to {} yesterday",
)  # fmt: skip

BENIGN = (
    "sort_key=created_at", "max_token: 4096", "refresh_token: 15 min", "primary_key: id",
    "token_count=1048576", "the token bucket is 5 wide", "public_key_path=/etc/keys/a.pub",
    "cache_key: user:1234:v2", "partition key: 2026-01-31", "foreign_key=orders.id",
    "commit 0123456789abcdef0123456789abcdef01234567", "HEAD at 0123456789ab",
    "id 123e4567-e89b-12d3-a456-426614174000", "tests/test_auth.py::test_token[expired-2]",
    "sha512-9f8A7b6C5d4E3f2A1b0cXyZz09QqWw129f8A7b6C5d4E3f2A1b0cXyZz09QqWw12==",
    "handoff://p1/abcdefghijklmnopqrstuvwxyz234567", "password reset works at /reset/1",
    "API_KEY=${API_KEY}", "token: <your-token>", "auth: required", "secret_name: db-main",
    "keyboard: de", "monkey: see", "the author is anna", "tokenizer=cl100k", "passes: 12",
    "AbstractSingletonProxyFactoryBean2", "src/auth/token_store.py", "key_size: 4096",
)  # fmt: skip


def token(chance: Chance, form: Format) -> str:
    """A token of this format, with a digit and a letter in its part by chance."""
    while True:
        rest = chance.text(form.alphabet, form.length)
        digits = sum(sign.isdigit() for sign in rest)
        plain_alphabet = not any(sign.isdigit() for sign in form.alphabet)
        if plain_alphabet or form.alphabet == string.digits or 1 < digits < len(rest):
            return form.prefix + rest


def known(form: Format) -> bool:
    """Whether the redactor's own list has this prefix."""
    return bool(form.prefix) and any(
        form.prefix.startswith(anchor) for shape in SHAPES for anchor in shape.anchors
    )


def placed(pattern: str, value: str) -> str:
    """A value in a context."""
    if pattern == "{b64}":
        return base64.b64encode(value.encode()).decode()
    if pattern == "{wrapped}":
        return "\n".join(textwrap.wrap("x " + value, 24, break_on_hyphens=False))
    return pattern.format(value)


def leaks(redacted: str, pattern: str, value: str) -> tuple[bool, bool]:
    """(the value is still there, its end alone is)."""
    shown = redacted.replace("\n", "") if pattern == "{wrapped}" else redacted
    looked = placed(pattern, value) if pattern == "{b64}" else value
    whole = looked in shown
    return whole, not whole and len(looked) >= 12 and looked[-6:] in shown


def metrics(seed: int) -> list[Metric]:
    """The rows of the suite."""
    chance = Chance(seed, "secrets")
    standard = SessionRedactor(b"bench")
    strict = SessionRedactor(b"bench", "strict")
    held = [form for form in (*HELD_OUT, *PREFIXED) if not known(form)]
    own = [form for form in PREFIXED if known(form)]
    partial = [0, 0]

    def cell(
        redactor: SessionRedactor, forms: list[Format], patterns: list[str]
    ) -> tuple[int, int]:
        hits = total = 0
        for pattern in patterns:
            for form in forms:
                for _ in range(2):
                    value = token(chance, form)
                    there, tail = leaks(redactor.text(placed(pattern, value)), pattern, value)
                    hits += not there and not tail
                    total += 1
                    partial[0] += not tail
                    partial[1] += 1
        return hits, total

    rows = [
        Metric("B1 keyed, held out", *cell(standard, held, list(KEYED.values())), 9700),
        Metric("B2 known shapes without a key", *cell(standard, own, list(UNKEYED.values())), 9800),
        Metric("B3 structural, held out", *cell(standard, held, list(STRUCTURAL.values())), 9500),
        Metric("B4 prose with a word, held out", *cell(standard, held, list(PROSE)), 8000),
        Metric("B4 no clue at all, held out", *cell(standard, held, [UNKEYED["prose"]]), None),
        Metric("B4 no clue at all, strict", *cell(strict, held, [UNKEYED["prose"]]), None),
    ]
    facts = [placed(pattern, fact) for fact in BENIGN for pattern in ("{}", "note: {}\nnext")]
    for redactor in (standard, strict):
        kept = sum(redactor.text(fact) == fact for fact in facts)
        rows.append(Metric(f"B5 facts kept, {redactor.mode}", kept, len(facts), 10_000))
    rows.append(Metric("B6 no end of a value left", partial[0], partial[1], 10_000))
    rows.append(_stable(chance, standard, [*own, *held]))
    return rows


def _stable(chance: Chance, redactor: SessionRedactor, forms: list[Format]) -> Metric:
    """Twice is once, and the same secret has the same mark in any order."""
    hits = total = 0
    for form in forms:
        one, other = token(chance, form), token(chance, form)
        lines = [f"TOKEN={one}", f"the password is {other}", f"SECRET={one}"]
        there = redactor.text("\n".join(lines))
        back = redactor.text("\n".join(reversed(lines)))
        same = sorted(there.split("\n")) == sorted(back.split("\n"))
        hits += same and redactor.text(there) == there
        total += 1
    return Metric("B7 stable and idempotent", hits, total, 10_000)
