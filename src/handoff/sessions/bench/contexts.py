"""The table that others' figures are published for: ten contexts, 25 everyday leaks, ten facts.

Every kind of credential of :mod:`formats` in each context. What was measured elsewhere, of
the pattern set of ``session-handoff`` 0.7.5, of ``detect-secrets`` 1.5.0, and of a first
sketch of these rules, is quoted beside it, in thousandths; their columns "self-id" and
"others" are of other lists of the same kind (221 rules, 358 detectors).
"""

from __future__ import annotations

import urllib.parse
from functools import cache
from typing import NamedTuple

from handoff.sessions.bench import Metric
from handoff.sessions.bench.chance import Chance
from handoff.sessions.bench.formats import RULES, Rule, known, made
from handoff.sessions.redact import SessionRedactor

#: strings that are made of one rule
EACH = 3


class Context(NamedTuple):
    """One context, and what was measured of others in it, in thousandths: ``theirs`` (all
    kinds, those that tell themselves, another list), ``scanner`` (those that tell
    themselves), ``sketch`` (all, another list: held out)."""

    name: str
    pattern: str
    theirs: tuple[int, int, int]
    scanner: int
    sketch: tuple[int, int]


CONTEXTS = (
    Context("prose, no clue", "then it worked with {} again", (36, 72, 0), 161, (511, 32)),
    Context("NAME_TOKEN=", "SERVICE_TOKEN={}", (995, 991, 1000), 161, (982, 982)),
    Context("JSON", '{{"x_api_key": "{}"}}', (995, 991, 1000), 987, (976, 982)),
    Context("YAML", "x_secret: {}", (995, 991, 1000), 161, (982, 982)),
    Context("CLI option", "deploy --x-token {} now", (36, 72, 0), 184, (976, 983)),
    Context("header", "X-Api-Key: {}", (1000, 1000, 1000), 184, (982, 982)),
    Context("URL userinfo", "https://me:{}@db.example/x", (36, 72, 0), 960, (1000, 974)),
    Context("URL query", "https://x.example/?auth={}", (36, 72, 0), 152, (997, 1000)),
    Context("camelCase", 'xApiToken = "{}"', (995, 991, 1000), 543, (976, 982)),
    Context("X_KEY_ID=", "X_KEY_ID={}", (36, 72, 0), 161, (967, 982)),
)

_PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
_JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
#: (what it is, the text, what must not be left of it)
LEAKS: tuple[tuple[str, str, str], ...] = (
    ("JWT", f"the session was {_JWT} then", _JWT),
    ("Slack bot", "posted as xoxb-123456789012-abcDEF456ghi there", "abcDEF456ghi"),
    ("Stripe", "charged with sk_live_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWDarjtT1zdp7dc"),
    ("Google", "maps used AIzaSyA1b2C3d4E5f6G7h8I9j0KaLbMcNdOePfQ", "SyA1b2C3d4E5f6G7h8"),
    ("GitLab", "cloned by glpat-x7Kq2mPz9RtLwV4nBs1c", "x7Kq2mPz9RtLwV4nBs1c"),
    ("Hugging Face", "pulled with hf_aBcDeFgHiJkLmNoPqRsTuVwXyZabcdefgh", "aBcDeFgHiJkLmNoP"),
    ("npm", "published by npm_1a2B3c4D5e6F7g8H9i0JkLmNoPqRsTuVwXyZ", "1a2B3c4D5e6F7g8H"),
    (".npmrc", "//registry.example/:_authToken=0a1b2c3d4e5f60718293", "0a1b2c3d4e5f60718293"),
    ("database URL", "postgres://app:S3cr3tPw9x@db.example:5432/x", "S3cr3tPw9x"),
    ("DB_PASS", "DB_PASS=tr0ub4dor&3", "tr0ub4dor&3"),
    ("password in prose", "the admin password is Wint3r-Sturm!9", "Wint3r-Sturm!9"),
    ("--password", "mysqldump --password Zx81Spectrum! db", "Zx81Spectrum!"),
    ("-u", "curl -u anna:K4ffee+Kuchen https://x.example", "K4ffee+Kuchen"),
    ("cookie", "Cookie: session=9f8e7d6c5b4a39281706; theme=dark", "9f8e7d6c5b4a39281706"),
    ("Set-Cookie", "Set-Cookie: sid=q7W2e9R4t6Y1u8I3; Path=/", "q7W2e9R4t6Y1u8I3"),
    ("ASIA", "assumed ASIAQ3EGRWXAMPLE2B7C again", "Q3EGRWXAMPLE2B7C"),
    ("AWS secret", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzz19Qq83Tk", "wJalrXUtnFEMI"),
    ("PGP", f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{_PEM}\n-----END PGP PRIVATE KEY BLOCK-----",
     _PEM),
    ("cut key", f"-----BEGIN RSA PRIVATE KEY-----\n{_PEM}", _PEM),
    ("passphrase", "unlock it with the passphrase correct-Horse7-battery", "correct-Horse7-battery"),
    ("Slack webhook", "https://hooks.slack.com/services/T0A1B2C3D/B4E5F6G7H/a1B2c3D4e5F6g7H8i9J0",
     "a1B2c3D4e5F6g7H8i9J0"),
    ("Discord webhook", "https://discord.com/api/webhooks/112233445566778899/Ab1-Cd2_Ef3Gh4Ij5Kl6Mn7",
     "Ab1-Cd2_Ef3Gh4Ij5Kl6Mn7"),
    ("bearer", "Authorization: Bearer 7d9f1c3b5a2e4860c1d3", "7d9f1c3b5a2e4860c1d3"),
    ("signed URL", "https://s3.example/x?X-Amz-Signature=5d3c1b7a9e8f60412233445566778899&n=1",
     "5d3c1b7a9e8f6041"),
    ("YAML block", "stringData:\n  client-secret: |\n    p9Q8w7E6r5T4y3U2i1\n", "p9Q8w7E6r5T4y3U2i1"),
)  # fmt: skip

#: of engineering, with the words key and token in them: nothing of them may change
FACTS = (
    "sort_key=created_at", "max_token: 4096", "refresh_token: 15 min", "primary_key: id",
    "partition key: 2026-01-31", "token_count=1048576", "foreign_key=orders.id",
    "cache_key: user:1234:v2", "public_key_path=/etc/keys/a.pub", "api_token_ttl=3600",
)  # fmt: skip
#: of 25 leaks and of ten facts: what others were measured to find, and to damage
LEAKS_BY_OTHERS = {"session-handoff": 5, "sketch": 23}
FACTS_BY_OTHERS = {"session-handoff": 10, "sketch": 0}
#: redactions in 100,000 words of documents, in tenths
DOCS_BY_OTHERS = {"session-handoff": 181, "sketch": 41}


class Row(NamedTuple):
    """What was found of one context's strings: (found, made) of all kinds, of those that tell
    themselves, of those held out, and of those held out by the strict rules."""

    context: Context
    all: tuple[int, int]
    telling: tuple[int, int]
    held: tuple[int, int]
    strict: tuple[int, int]


def found(redactor: SessionRedactor, text: str, value: str) -> bool:
    """Whether nothing of a value is left, not even its end."""
    left = redactor.text(text)
    return value not in left and value[-6:] not in left


@cache
def rows(seed: int) -> tuple[Row, ...]:
    """The table."""
    chance = Chance(seed, "contexts")
    standard, strict = SessionRedactor(b"bench"), SessionRedactor(b"bench", "strict")
    strings = [(rule, made(chance, rule)) for rule in RULES for _ in range(EACH)]
    table = []
    for context in CONTEXTS:
        texts = [(rule, *_placed(context, value)) for rule, value in strings]
        hits = [(rule, found(standard, text, value)) for rule, text, value in texts]
        held = [(rule, text, value) for rule, text, value in texts if not known(rule.prefix)]
        strictly = [found(strict, text, value) for _, text, value in held]
        table.append(
            Row(
                context,
                _count(hits, lambda _rule: True),
                _count(hits, lambda rule: rule.tells_itself),
                _count(hits, lambda rule: not known(rule.prefix)),
                (sum(strictly), len(strictly)),
            )
        )
    return tuple(table)


def _placed(context: Context, value: str) -> tuple[str, str]:
    """(the text, the value as it stands in it): in a URL some signs are written otherwise."""
    if context.name.startswith("URL"):
        value = urllib.parse.quote(value, safe="")
    return context.pattern.format(value), value


def _count(hits: list[tuple[Rule, bool]], wanted: object) -> tuple[int, int]:
    assert callable(wanted)
    chosen = [hit for rule, hit in hits if wanted(rule)]
    return sum(chosen), len(chosen)


def leaks() -> list[str]:
    """The everyday leaks of which something is left."""
    standard = SessionRedactor(b"bench")
    return [name for name, text, secret in LEAKS if not found(standard, text, secret)]


def damaged() -> list[str]:
    """The facts that are not as they were."""
    standard = SessionRedactor(b"bench")
    return [fact for fact in FACTS if standard.text(fact) != fact]


def metrics(seed: int) -> list[Metric]:
    """The rows of the suite: in each context, what is held out has to reach the best that was
    published of others for kinds that they had not seen either."""
    found_rows = []
    for row in rows(seed):
        best = 10 * max(row.context.theirs[2], row.context.sketch[1])
        name = f"table, held out, {row.context.name}"
        found_rows.append(Metric(name, *row.held, best))
    lost, broken = len(leaks()), len(damaged())
    return [
        *found_rows,
        Metric("table, 25 everyday leaks", len(LEAKS) - lost, len(LEAKS), 9600),
        Metric("table, 10 facts as they were", len(FACTS) - broken, len(FACTS), 10_000),
    ]


def shown(seed: int) -> list[dict[str, object]]:
    """The table as JSON: ``context``, what was published (thousandths), ours (found, made)."""
    return [
        {
            "context": row.context.name,
            "published": {
                "session_handoff": list(row.context.theirs),
                "detect_secrets": row.context.scanner,
                "sketch": list(row.context.sketch),
            },
            "all": list(row.all),
            "self_identifying": list(row.telling),
            "held_out": list(row.held),
            "held_out_strict": list(row.strict),
        }
        for row in rows(seed)
    ]
