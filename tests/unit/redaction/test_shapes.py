from __future__ import annotations

import json

import pytest

from handoff.redaction import MARK, Redactor, looks_secret
from handoff.redaction.shapes import SHAPES


def low(n: int) -> str:
    return ("a1b2c3d4e5f60718" * 20)[:n]


def mixed(n: int) -> str:
    return ("aB3dE5gH7jK9mN1pQ2rS" * 20)[:n]


# Built from parts, so that no scanner takes this file for a leak.
EXAMPLES = {
    "aws-access-key": "AKIA" + "ABCDEFGH12345678",
    "github-token": "gh" + "p_" + mixed(36),
    "gitlab-token": "gl" + "pat-" + mixed(20),
    "anthropic-key": "sk-" + "ant-api03-" + mixed(80),
    "openrouter-key": "sk-" + "or-v1-" + low(64),
    "openai-key": "sk-" + "proj-" + mixed(60),
    "api-key": "sk-" + mixed(32),
    "stripe-key": "sk_" + "live_" + mixed(24),
    "slack-token": "xo" + "xb-1234567890-" + mixed(24),
    "slack-webhook": "hooks.slack.com/" + "services/T00000000/B00000000/" + mixed(24),
    "discord-webhook": "discord.com/" + "api/webhooks/123456789/" + mixed(60),
    "google-api-key": "AI" + "za" + mixed(35),
    "google-oauth": "GOC" + "SPX-" + mixed(28),
    "npm-token": "np" + "m_" + mixed(36),
    "pypi-token": "py" + "pi-AgEIcHlwaS5vcmc" + mixed(60),
    "huggingface-token": "h" + "f_" + mixed(34),
    "sendgrid-key": "S" + "G." + mixed(22) + "." + mixed(43),
    "mailgun-key": "ke" + "y-" + low(32),
    "twilio-key": "S" + "K" + low(32),
    "digitalocean-token": "do" + "p_v1_" + low(64),
    "shopify-token": "shp" + "at_" + low(32),
    "square-token": "sq0" + "atp-" + mixed(22),
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + mixed(43),
    "age-key": "AGE-SECRET-" + "KEY-1" + mixed(58).upper(),
    "vault-token": "hv" + "s." + mixed(24),
    "linear-key": "lin_" + "api_" + mixed(40),
    "notion-key": "nt" + "n_" + mixed(43),
    "planetscale-token": "pscale_" + "tkn_" + mixed(43),
    "databricks-token": "da" + "pi" + low(32),
    "newrelic-key": "NR" + "AK-" + mixed(27).upper(),
    "grafana-token": "gl" + "sa_" + mixed(32) + "_" + low(8),
    "sentry-token": "sntr" + "ys_" + mixed(60),
    "postman-key": "PM" + "AK-" + low(24) + "-" + low(34),
    "doppler-token": "dp" + ".pt." + mixed(43),
    "supabase-key": "sb" + "p_" + low(40),
    "groq-key": "gs" + "k_" + mixed(52),
    "xai-key": "xa" + "i-" + mixed(80),
    "perplexity-key": "pp" + "lx-" + mixed(48),
    "replicate-token": "r" + "8_" + mixed(37),
    "nvidia-key": "nv" + "api-" + mixed(64),
    "figma-token": "fi" + "gd_" + mixed(40),
    "docker-token": "dckr_" + "pat_" + mixed(27),
    "rubygems-key": "ruby" + "gems_" + low(48),
    "crates-token": "ci" + "o" + mixed(32),
    "atlassian-token": "ATA" + "TT3" + mixed(180),
    "bitbucket-token": "AT" + "BB" + mixed(32),
    "pulumi-token": "pu" + "l-" + low(40),
    "brevo-key": "xkey" + "sib-" + low(64) + "-" + mixed(16),
    "alibaba-key": "LT" + "AI" + mixed(20),
    "tencent-key": "AK" + "ID" + mixed(32),
    "buildkite-token": "bk" + "ua_" + low(40),
    "circleci-token": "CCI" + "PAT_" + mixed(22) + "_" + low(40),
    "artifactory-key": "AK" + "Cp" + mixed(69),
    "terraform-token": mixed(14) + ".atlas" + "v1." + mixed(67),
    "dropbox-token": "sl" + ".u." + mixed(130),
    "facebook-token": "EAA" + "G" + mixed(100),
    "telegram-token": "123456789:" + "A" + "A" + mixed(33),
}


def test_every_shape_has_an_example() -> None:
    assert {shape.kind for shape in SHAPES} == set(EXAMPLES)


CONTEXTS = [
    "{}",
    "see {} there",
    "{}\n",
    "x={}",
    "({})",
    "'{}'",
    "<{}>",
    "https://h/?a={}&b=1",
    "a%3D{}%26b",
    "| {} |",
    "```\n{}\n```",
    "\\n{}\\n",
    "+{}",
]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_token_is_found_wherever_it_stands(kind: str, context: str) -> None:
    token = EXAMPLES[kind]
    text = context.replace("{}", token)
    out = Redactor(b"k").redact(text)
    assert MARK.search(out), out
    for size in range(8):
        assert token[size : size + 12] not in out
    assert token[-8:] not in out
    assert looks_secret(text)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_token_is_found_when_a_line_end_breaks_it(kind: str) -> None:
    token = EXAMPLES[kind]
    for cut in range(2, len(token) - 1, max(1, len(token) // 12)):
        out = Redactor(b"k").redact(f"say {token[:cut]}\n  {token[cut:]} now")
        assert MARK.search(out), (cut, out)
        rest = out.replace("say ", "").replace(" now", "")
        assert token[-6:] not in rest or len(token) - cut < 6, (cut, out)


def test_a_long_token_in_many_lines() -> None:
    token = "ghp" + "_" + mixed(200)
    lines = "\n".join(token[n : n + 40] for n in range(0, len(token), 40))
    assert MARK.sub("M", Redactor(b"k").redact(f"x\n{lines}\nnext line")) == "x\nM\nnext line"


def test_the_next_line_s_words_are_not_swallowed() -> None:
    token = "ghp" + "_" + mixed(36)
    for after in ("Then go on", "1 more", "- item", "commit abc"):
        out = Redactor(b"k").redact(f"{token}\n{after}")
        assert MARK.sub("M", out) == f"M\n{after}"


@pytest.mark.parametrize(
    "text",
    [
        "task-some-long-kebab-case-name-here",
        "risk-assessment-of-the-new-thing",
        "sk-learn",
        "the sk-learn-contrib-package-name-is-long",
        "desk-1234567890123456789012",
        "monkey-0123456789abcdef0123456789abcdef",
        "AKIA",
        "SKELETON",
        "npm_config_registry",
        "hf_hub_download",
        "pypi-publish",
        "ghp_short",
        "eyJ",
        "https://example.com/path:AA",
        "cio",
        "xai-org",
        "src/secret_sauce/main.py",
        "key-value store",
        "EAAB",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ someone@host",
        "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    ],
)
def test_what_only_looks_a_little_like_one_stays(text: str) -> None:
    assert Redactor(b"k").redact(text) == text


BODY = "\n".join(mixed(64) for _ in range(4))


@pytest.mark.parametrize("name", ["RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA ", "", "PGP "])
def test_private_keys(name: str) -> None:
    block = " BLOCK" if name == "PGP " else ""
    key = (
        f"-----BEGIN {name}PRIVATE KEY{block}-----\n{BODY}\n-----END {name}PRIVATE KEY{block}-----"
    )
    redactor = Redactor(b"k")
    for text in (
        key,
        json.dumps({"x": key}),
        key.replace("\n", "\n    "),
        key.replace("\n", "\\n"),
    ):
        out = redactor.redact(f"a {text} b")
        assert mixed(16) not in out
        assert "PRIVATE KEY" not in out
        assert out.startswith("a ")
        assert out.endswith(" b")


def test_a_private_key_without_its_end() -> None:
    out = Redactor(b"k").redact(f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\nand then text goes on\n")
    assert MARK.sub("M", out) == "M\nand then text goes on\n"
    with_head = f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{BODY}"
    assert MARK.sub("M", Redactor(b"k").redact(with_head)) == "M"
