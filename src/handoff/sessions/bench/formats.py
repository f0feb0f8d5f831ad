"""How credentials of many services look: name of the kind, what it starts with, which signs
follow and how many.

Under the ids of the rules by which gitleaks' public list (MIT) knows them, each cut down to a
prefix, an alphabet and a length, from general knowledge: tokens of several parts have one,
and where a prefix is drawn by chance, one is written out. The ids are what splits the table: a
rule whose prefix the redactor's own list has is *known*, every other one is *held out*, and the
split is computed from that list at each run.
"""

from __future__ import annotations

import string
from typing import NamedTuple

from handoff.redaction.shapes import SHAPES
from handoff.sessions.bench.chance import Chance

_ALPHABETS = {
    "hex": "0123456789abcdef",
    "low": string.ascii_lowercase + string.digits,
    "an": string.ascii_letters + string.digits,
    "url": string.ascii_letters + string.digits + "-_",
    "up": string.ascii_uppercase + string.digits,
    "dig": string.digits,
    "abc": string.ascii_letters,
    "b64": string.ascii_letters + string.digits + "+/",
    "lowd": string.ascii_lowercase + string.digits + "-_=",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}


class Rule(NamedTuple):
    """One kind of credential."""

    id: str
    prefix: str
    alphabet: str
    length: int

    @property
    def tells_itself(self) -> bool:
        """Whether it starts with something by which a reader knows it."""
        return len(self.prefix) > 2


#: id, prefix ("" for none: only its surroundings tell it), alphabet, how many signs
_TABLE = """
1password-secret-key A3- up 34|1password-service-account-token ops_eyJ b64 250
adafruit-api-key - url 32|adobe-client-id - hex 32|adobe-client-secret p8e- low 32
age-secret-key AGE-SECRET-KEY-1 bech 58|airtable-api-key - low 17
airtable-personal-access-token pat7Gh2kLm9QxZb4r. hex 64|algolia-api-key - low 32
alibaba-access-key-id LTAI low 20|alibaba-secret-key - low 30|anthropic-admin-api-key sk-ant-admin01- url 93
anthropic-api-key sk-ant-api03- url 93|artifactory-api-key AKCp an 69|artifactory-reference-token cmVmd an 59
asana-client-id - dig 16|asana-client-secret - low 32|atlassian-api-token ATATT3 url 186
authress-service-client-access-key sc_ low 40|aws-access-token AKIA up 16
aws-amazon-bedrock-api-key-long-lived ABSK b64 110|azure-ad-client-secret abc8Q~ url 34
beamer-api-token b_ lowd 44|bitbucket-client-id - low 32|bitbucket-client-secret - lowd 64
bittrex-access-key - low 32|bittrex-secret-key - low 32|cisco-meraki-api-key - hex 40
clickhouse-cloud-api-secret-key 4b1d an 38|clojars-api-token CLOJARS_ low 60
cloudflare-api-key - url 40|cloudflare-global-api-key - hex 37|cloudflare-origin-ca-key v1.0- hex 146
codecov-access-token - low 32|cohere-api-token - an 40|coinbase-access-token - lowd 64
confluent-access-token - low 16|confluent-secret-key - low 64|contentful-delivery-api-token - lowd 43
databricks-api-token dapi hex 32|datadog-access-token - low 40|defined-networking-api-token dnkey- lowd 26
digitalocean-access-token doo_v1_ hex 64|digitalocean-pat dop_v1_ hex 64|digitalocean-refresh-token dor_v1_ hex 64
discord-api-token - hex 64|discord-client-secret - lowd 32|doppler-api-token dp.pt. low 43
droneci-access-token - low 32|dropbox-api-token - low 15|dropbox-long-lived-api-token - low 76
dropbox-short-lived-api-token sl. lowd 135|duffel-api-token duffel_live_ url 43|dynatrace-api-token dt0c01. up 88
easypost-api-token EZAK low 54|easypost-test-api-token EZTK low 54|etsy-access-token - low 24
facebook-page-access-token EAAM an 120|facebook-secret - hex 32
fastly-api-token - lowd 32|finicity-api-token - hex 32|finicity-client-secret - low 20|finnhub-access-token - low 20
flickr-access-token - low 32|flutterwave-encryption-key FLWSECK_TEST- hex 12
flutterwave-public-key FLWPUBK_TEST- hex 32|flutterwave-secret-key FLWSECK_TEST- hex 32
flyio-access-token fo1_ url 43|frameio-api-token fio-u- lowd 64|freemius-secret-key sk_ an 29
freshbooks-access-token - low 64|gcp-api-key AIza url 35|github-app-token ghu_ an 36
github-fine-grained-pat github_pat_ an 82|github-oauth gho_ an 36|github-pat ghp_ an 36
github-refresh-token ghr_ an 36|gitlab-cicd-job-token glcbt- url 26|gitlab-deploy-token gldt- url 20
gitlab-feature-flag-client-token glffct- url 20|gitlab-feed-token glft- url 20
gitlab-incoming-mail-token glimt- url 25|gitlab-kubernetes-agent-token glagent- url 50
gitlab-oauth-app-secret gloas- url 64|gitlab-pat glpat- url 20|gitlab-ptt glptt- hex 40
gitlab-runner-authentication-token glrt- url 20|gitlab-scim-token glsoat- url 20
gitlab-session-cookie _gitlab_session= hex 32|gitter-access-token - lowd 40|gocardless-api-token live_ lowd 40
grafana-api-key eyJrIjoi b64 88|grafana-cloud-api-token glc_ b64 60|grafana-service-account-token glsa_ an 41
harness-api-key pat.a8Kd02mZqL1xVb3nTc5eWg. an 45|hashicorp-tf-api-token k3Tq9ZpLm2Wx7R.atlasv1. url 65
hashicorp-tf-password - url 20|heroku-api-key-v2 HRKU-AA url 58|hubspot-api-key - up 36
huggingface-access-token hf_ abc 34|huggingface-organization-api-token api_org_ abc 34
infracost-api-token ico- an 32|intercom-api-key - lowd 60|intra42-client-secret s-s4t2ud- hex 64
jfrog-api-key - low 73|jfrog-identity-token - low 64|kraken-access-token - b64 88
kucoin-access-token - hex 24|launchdarkly-access-token - lowd 40|linear-api-key lin_api_ low 40
linear-client-secret - hex 32|linkedin-client-id - low 14|linkedin-client-secret - low 16
lob-api-key live_ hex 35|lob-pub-api-key live_pub_ hex 31|looker-client-secret - low 24
mailchimp-api-key - hex 32|mailgun-private-api-token key- hex 32|mailgun-pub-key pubkey- hex 32
mapbox-api-token pk. low 60|mattermost-access-token - low 26|maxmind-license-key Qx73Lm_ an 29
messagebird-api-token - low 25|netlify-access-token - lowd 44|new-relic-browser-api-token NRJS- hex 19
new-relic-insert-key NRII- low 32|new-relic-user-api-id - low 64|new-relic-user-api-key NRAK- low 27
notion-api-token ntn_ an 46|npm-access-token npm_ low 36|nuget-config-password - b64 44
nytimes-access-token - lowd 32|octopus-deploy-api-key API- up 26|okta-access-token 00 url 40
openai-api-key sk-proj- url 74|openshift-user-token sha256~ url 43|perplexity-api-key pplx- an 48
plaid-client-id - low 24|plaid-secret-key - low 30|planetscale-api-token pscale_tkn_ url 43
planetscale-oauth-token pscale_oauth_ url 43|planetscale-password pscale_pw_ url 43
postman-api-token PMAK- hex 59|prefect-api-token pnu_ low 36|pulumi-api-token pul- hex 40
pypi-upload-token pypi-AgEIcHlwaS5vcmc url 70|rapidapi-access-token - url 50|readme-api-token rdme_ low 70
rubygems-api-token rubygems_ hex 48|scalingo-api-token tk-us- url 48|sendbird-access-token - hex 40
sendgrid-api-token SG. lowd 66|sendinblue-api-token xkeysib- hex 64|sentry-access-token - hex 64
sentry-org-token sntrys_eyJpYXQiO b64 90|sentry-user-token sntryu_ hex 64|settlemint-application-access-token sm_aat_ an 16
settlemint-personal-access-token sm_pat_ an 16|settlemint-service-access-token sm_sat_ an 16
shippo-api-token shippo_live_ hex 40|shopify-access-token shpat_ hex 32|shopify-custom-access-token shpca_ hex 32
shopify-private-app-access-token shppa_ hex 32|shopify-shared-secret shpss_ hex 32
slack-app-token xapp-1-A02 up 40|slack-bot-token xoxb-12345678901- dig 24|slack-user-token xoxp-12345678901- an 40
snyk-api-token - hex 36|sonar-api-token squ_ hex 40|sourcegraph-access-token sgp_ hex 40
square-access-token EAAA url 60|squarespace-access-token - hex 36|stripe-access-token sk_live_ an 30
sumologic-access-id su an 12|sumologic-access-token - low 64|telegram-bot-api-token 123456789:A url 34
travisci-access-token - low 22|twilio-api-key SK hex 32|twitch-api-token - low 30
twitter-access-secret - low 45|twitter-api-key - low 25|twitter-api-secret - low 50|twitter-bearer-token AAAAAAAAAAAAAAAAAAAAAA an 90
typeform-api-token tfp_ lowd 59|vault-batch-token hvb. url 140|vault-service-token hvs. url 95
yandex-access-token t1.9eu url 86|yandex-api-key AQVN url 36|yandex-aws-access-token YC url 38
zendesk-secret-key - low 40
"""


def _rules() -> tuple[Rule, ...]:
    found = []
    for row in _TABLE.replace("\n", "|").split("|"):
        parts = row.split()
        if len(parts) == 4:
            name, prefix, alphabet, length = parts
            found.append(Rule(name, "" if prefix == "-" else prefix, alphabet, int(length)))
    return tuple(found)


RULES: tuple[Rule, ...] = _rules()


def known(prefix: str) -> bool:
    """Whether the redactor's own list has something that starts so."""
    return bool(prefix) and any(
        anchor in prefix for shape in SHAPES for anchor in shape.anchors if len(anchor) > 2
    ) | prefix.startswith(tuple(a for shape in SHAPES for a in shape.anchors))


def made(chance: Chance, rule: Rule) -> str:
    """A credential of that kind: never a word or a number alone."""
    alphabet = _ALPHABETS[rule.alphabet]
    while True:
        rest = chance.text(alphabet, rule.length)
        digits = sum(sign.isdigit() for sign in rest)
        if rule.alphabet in ("abc", "dig") or 0 < digits < len(rest):
            return rule.prefix + rest
