from __future__ import annotations

import pytest

from handoff.redaction import MARK, Redactor

SECRET = "hunter2!Tq9"


@pytest.mark.parametrize(
    "text",
    [
        "password={}",
        "PASSWORD={}",
        "password: {}",
        "password = '{}'",
        'password="{}"',
        'export DB_PASSWORD="{}"',
        '{"password": "{}"}',
        '{\\"password\\":\\"{}\\"}',
        "{'password': '{}'}",
        "dbPassword: {}",
        "db-password: {}",
        "[db]\npassword = {}\n",
        "API_KEY={}",
        "apiKey: '{}'",
        "x-api-key: {}",
        "AWS_SECRET_ACCESS_KEY={}",
        "client_secret={}&grant_type=x",
        "https://h/?access_token={}&x=1",
        "token: {}",
        "_authToken={}",
        "//registry.example.org/:_authToken={}",
        "--password {}",
        "--password={}",
        "--token '{}'",
        "curl -u bob:{} https://h",
        "curl --user bob:{} https://h",
        "machine h login bob password {}",
        "the password is {}",
        "the password was: {}",
        "Password: {}",
        "Authorization: Bearer {}",
        "Authorization: {}",
        'curl -H "Authorization: token {}"',
        "-H 'X-Auth-Token: {}'",
        "Cookie: sid={}; other=1",
        "Set-Cookie: sid={}; HttpOnly",
        "postgres://bob:{}@db/x",
        "redis://:{}@db:6379",
        "https://bob:{}@h/x?y#z",
        "params['password'] = '{}'",
        "SESSION_SECRET := {}",
        "password => '{}'",
        "passphrase: {}",
        "password:\n    {}",
        'password="{}',
        "AccountKey={};EndpointSuffix=x",
    ],
)
def test_a_value_beside_its_name_is_taken_out_whole(text: str) -> None:
    out = Redactor(b"k").redact(text.replace("{}", SECRET))
    for start in range(len(SECRET) - 3):
        assert SECRET[start : start + 4] not in out, out
    assert MARK.search(out)


@pytest.mark.parametrize(
    "text", ['password: "correct horse battery staple"', "PASSPHRASE='correct horse battery'"]
)
def test_quoted_words_are_a_password(text: str) -> None:
    assert "horse" not in Redactor(b"k").redact(text)


def test_a_quote_inside_the_quotes_is_no_end() -> None:
    for text in ('password: "ab\\"cd1234"', "password: 'ab\"cd1234'", 'password: "ab\'cd1234"'):
        assert "1234" not in Redactor(b"k").redact(text)


def test_a_block_in_yaml_is_taken_out() -> None:
    text = "a: 1\nsecret: |\n  one\n  two\nb: 2\n"
    assert MARK.sub("M", Redactor(b"k").redact(text)) == "a: 1\nsecret: |\nMb: 2\n"


@pytest.mark.parametrize(
    "text",
    [
        "primary_key: id",
        "cookie = self.tell()",
        "def unix_getpass(prompt='Password: ', stream=None):",
        "def getpass(prompt='Password: ', stream='x'):",
        "def parse(cookie_string: str) -> dict[str, str]:",
        "cookie: http.cookies.BaseCookie[str] = http.cookies.SimpleCookie()",
        "pass_context = jinja2.pass_context",
        "| `Authorization: Bearer` |",
        "max_tokens=4096",
        "max_tokens: 128000",
        "token_count: 12345678",
        "input_tokens: 12",
        "password: str",
        "password: Optional[str] = None",
        "def login(user, password):",
        "token = get_token()",
        "token = self.token",
        "token=token",
        "password=os.environ['PASSWORD']",
        "password=$PASSWORD",
        "password=${PASSWORD}",
        "password: {{ db_password }}",
        "password: <your password>",
        "password: your-password-here",
        "password=***",
        "secret_name: prod/db",
        "token_type: bearer",
        "auth_method: oauth2",
        "author: Jane Doe 1999",
        "authors = ['a1']",
        "authority: example1.com",
        "tokenizer: gpt2-medium",
        "keyboard: us1",
        "monkey=abc12345",
        "passed: 12",
        "test_password_reset PASSED",
        "bypass=abc12345",
        "compass: n0rth-west",
        "tests/unit/test_token.py::test_secret_1",
        "the token is invalid",
        "the password is wrong",
        "password: required",
        "key: value1",
        "foreign_key=user_id",
        "ssh_key_path=/home/x/.ssh/id",
        "password_file: /run/secrets/db",
        "sort key: 12",
        "Basic understanding of the matter",
        "bearer of good news",
        "http://localhost:8080/path",
        "https://example.com:443/@user",
        "git@github.com:org/repo.git",
        "ls -u x",
        "sort -u a:b",
        "docker run --user 1000:1000 x",
        "signature: see below",
        "access_key_id: x",
        "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ],
)
def test_facts_and_code_stay(text: str) -> None:
    assert Redactor(b"k").redact(text) == text


def test_a_scheme_without_its_value_is_nothing() -> None:
    for text in (
        'token: "Bearer "',
        "token: 'Basic '",
        "token: Bearer ",
        'authorization="Bearer "',
    ):
        assert Redactor(b"k").redact(text) == text


def test_a_word_far_into_a_long_name_tells_its_value() -> None:
    name = "pass_the_" + "long_" * 12 + "api_token"
    redacted = Redactor(b"k").redact(f'{name} = "a1B2c3D4e5F6"')
    assert MARK.sub("M", redacted) == f'{name} = "M"'
