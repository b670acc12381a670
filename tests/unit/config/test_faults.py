"""conf.toml: each fault gives one line with its place, what was found and what is allowed; all faults come at once."""

import pytest

from mirrord.config.loader import load_text
from mirrord.model.errors import ConfigError

CLUSTERS = """[clusters.eu]
bootstrap = "eu:9092"
[clusters.us]
bootstrap = "us:9092"
[clusters.asia]
bootstrap = "asia:9092"
"""
FLOW = '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = ["orders"]\n'


def faults(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_text(text, "conf.toml")
    return str(raised.value)


def flow(**keys: str) -> str:
    values = {"from": '"eu"', "to": '"us"', "topics": '["orders"]'} | {key.rstrip("_"): keys[key] for key in keys}
    return "[[flows]]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("from_", '"uk"', 'conf.toml:8: flows[0].from: found "uk"; allowed: "eu", "us" or "asia"'),
        ("from_", '"aisa"', 'did you mean "asia"?'),
        ("to", '"eu"', 'conf.toml:7: flows[0]: from and to are both "eu"; a flow needs two clusters'),
        ("to", "3", "conf.toml:9: flows[0].to: found 3; allowed: "),
        ("topics", "[]", "conf.toml:10: flows[0].topics: found an empty list; allowed: a list of at least one item"),
        ("topics", '"orders"', 'conf.toml:10: flows[0].topics: found "orders"; allowed: a list of at least one item'),
        ("topics", '["a", "b("]', 'conf.toml:10: flows[0].topics[1]: found "b("; allowed: a regular expression'),
        ("topics", "[1]", "conf.toml:10: flows[0].topics[0]: found 1; allowed: a regular expression"),
        ("exclude", '["*"]', "nothing to repeat"),
        (
            "naming",
            '"template"',
            'conf.toml:11: flows[0].naming: found "template"; allowed: a template such as "dr-{topic}", "prefix", ',
        ),
        ("naming", '"{topic}"', 'found "{topic}"; allowed: a template'),
        ("naming", '"a b {topic}"', 'found "a b {topic}"; allowed: a template'),
        ("naming", '"identiy"', 'did you mean "identity"?'),
        ("separator", '"/"', 'flows[0].separator: found "/"; allowed: up to 16 letters, digits, ".", "_" and "-"'),
        ("start", '"begin"', 'flows[0].start: found "begin"; allowed: "earliest", "latest", an RFC 3339 time'),
        ("start", "2026-01-31T12:00:00", "(with its zone)"),
        ("start_of", '"latest"', "flows[0].start_of: found a string; allowed: a table"),
        ("start_of", '{ "*" = "latest" }', 'flows[0].start_of: found the key "*"; allowed: a regular expression'),
        (
            "start_of",
            '{ orders = "lastest" }',
            'flows[0].start_of."orders": found "lastest"; allowed: "earliest", "latest"',
        ),
        ("on_loss", '"stop"', 'allowed: "continue" or "halt"'),
        ("on_reject", '"park"', 'allowed: "halt", "skip" or "skip-unparked"'),
        ("on_unknown_copies", '"copy"', 'allowed: "wait" or "begin"'),
        ("isolation", '"read_comitted"', 'did you mean "read_committed"?'),
        ("refresh", "5", 'flows[0].refresh: found 5; allowed: "never" or a duration such as "500ms"'),
        ("refresh", '"1ms"', 'flows[0].refresh: found "1ms"; allowed: "never" or from "100ms" to "30d"'),
        ("limits", '{ rate = "10MiB" }', 'flows[0].limits.rate: found "10MiB"; allowed: a rate such as "10MiB/s"'),
        ("limits", '{ rate = "1B/s" }', 'at least "64KiB/s"'),
        ("rpo", "30", 'flows[0].rpo: found 30; allowed: a duration such as "500ms"'),
        ("rpo", '"10ms"', 'flows[0].rpo: found "10ms"; allowed: from "1s" to "30d"'),
        ("replication_factor", "0", '"source" or "broker" or a whole number from 1 to 32767'),
        ("groups", '"follow"', "flows[0].groups: found a string; allowed: a table"),
        ("groups", '{ mode = "folow" }', 'flows[0].groups.mode: found "folow"; allowed: "follow", "forward-only" or'),
        ("groups", '{ match = ["("] }', "flows[0].groups.match[0]: found"),
        ("sync", '{ acls = "read-write" }', 'found "read-write"; allowed: "read-only", "exact" or "off"'),
        ("sync", '{ exclude = ["x"] }', 'flows[0].sync.exclude: unknown key; did you mean "exclude_configs"?'),
        ("heartbeats", '{ every = "0s" }', 'heartbeats.every: found "0s"; allowed: from "100ms" to "30d"'),
        (
            "mm2_records",
            "{ offset_lag_max = -1 }",
            "mm2_records.offset_lag_max: found -1; allowed: a whole number from 0",
        ),
        (
            "limits",
            '{ in_flight_bytes = "8M" }',
            'conf.toml:11: flows[0].limits.in_flight_bytes: found "8M"; allowed: a size',
        ),
        (
            "limits",
            '{ map_bytes = "1MiB" }',
            'conf.toml:11: flows[0].limits.map_bytes: found "1MiB"; allowed: from "8MiB" to "1024GiB"',
        ),
        (
            "limits",
            '{ rebuild_bytes = "2GiB" }',
            'conf.toml:11: flows[0].limits.rebuild_bytes: found "2GiB"; allowed: from "1MiB" to "1GiB"',
        ),
        ("limits", "3", "conf.toml:11: flows[0].limits: found a number; allowed: a table"),
        ("name", '"a b"', 'flows[0].name: found "a b"; allowed: a name of letters, digits'),
        (
            "on_gap",
            '"halt"',
            "conf.toml:11: flows[0].on_gap: unknown key (known here: delete_grace, exclude, from, from_mm2, groups",
        ),
        ("topic", '["x"]', 'flows[0].topic: unknown key; did you mean "topics"?'),
    ],
)
def test_faults_of_a_flow(key: str, value: str, line: str) -> None:
    assert line in faults(CLUSTERS + flow(**{key: value}))


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (
            '[runtime]\nengine = "rya"',
            'conf.toml:12: runtime.engine: found "rya"; allowed: "ray" or "process"; did you mean',
        ),
        ('[runtime]\nlease_ttl = "1ms"', 'conf.toml:12: runtime.lease_ttl: found "1ms"; allowed: from "1s" to "5m"'),
        ("[replicators]\ncount = 0", 'replicators.count: found 0; allowed: "auto" or a whole number from 1 to 10000'),
        ("[replicators]\ncount = true", "replicators.count: found true"),
        ("[ray]\ndashboard = 1", "ray.dashboard: found 1; allowed: true or false"),
        ('[http]\nlisten = "8182"', 'http.listen: found "8182"; allowed: host:port'),
        ('[http]\ntoken = "hunter2"', "http.token: found ***; allowed: a reference"),
        ("[http]\ntokens = 3", "http.tokens: found ***; allowed: tables, each under its own [[http.tokens]]"),
        ('[http]\nnames = ["a b"]', 'http.names[0]: found "a b"; allowed: a host name, with or without a port'),
        (
            '[[http.tokens]]\nname = "local"',
            'found "local"; allowed: up to 64 letters, digits, "_" and "-", except "tok',
        ),
        ('[[http.tokens]]\nname = "a"\nrole = "oprate"', 'did you mean "operate"?'),
        ('[[http.tokens]]\nname = "a"', 'http.tokens[0].role: missing; allowed: "view", "operate" or "configure"'),
        ('[http.tls]\nkey = "env:K"', "http.tls.certificate: missing although key is set; allowed: a reference"),
        ('[http.tls]\ncertificate = "env:K"', "http.tls.key: missing although certificate is set"),
        ('[http.tls]\nclient_ca = "env:K"', "http.tls.certificate: missing although client_ca is set"),
        ('[http]\ntokens = "hunter2"', "http.tokens: found ***; allowed: tables"),
        ('[[http.tokens]]\ntoken = "hunter2"', "http.tokens[0].token: found ***; allowed: a reference"),
        ('[[http.tokens]]\nrol = "view"', 'http.tokens[0].rol: unknown key; did you mean "role"?'),
        (
            "[http]\ntokens = [" + "{ name = 'a', role = 'view', token = 'env:A' }," * 2 + "]",
            'http.tokens[1].name: two tokens are named "a"; give one of them a different name',
        ),
        ("[logs]\ndir = 1", "logs.dir: found 1; allowed: a string"),
        ("[htpp]", 'conf.toml:11: htpp: unknown key; did you mean "http"?'),
    ],
)
def test_faults_of_the_daemon(table: str, line: str) -> None:
    assert line in faults(CLUSTERS + FLOW + table)


@pytest.mark.parametrize(
    ("cluster", "line"),
    [
        (
            'bootstrap = "eu1"',
            'conf.toml:2: clusters.eu.bootstrap: found "eu1"; allowed: addresses such as "kafka1:9092',
        ),
        ('bootstrap = "eu1:9092,"', "addresses such as"),
        ('bootstrap = ["eu1:9092"]', "clusters.eu.bootstrap: found a list; allowed: addresses such as"),
        ('bootsrap = "eu1:9092"', 'clusters.eu.bootsrap: unknown key; did you mean "bootstrap"?'),
        ('bootsrap = "eu1:9092"', "clusters.eu.bootstrap: missing; allowed: addresses such as"),
        ('security = { protocol = "TLS" }', '"SSL"'),
        (
            'security = { protocol = "SASL_SSL" }',
            'security.mechanism: missing with protocol "SASL_SSL"; allowed: "PLAIN", ',
        ),
        (
            'security = { protocol = "SASL_SSL", mechanism = "PLAIN" }',
            'security.username: missing with protocol "SASL_SSL"',
        ),
        ('security = { username = "me" }', 'security.username: has no effect with protocol "PLAINTEXT"'),
        ('security = { protocol = "SASL_PLAINTEXT", ca = "file:x" }', "security.ca: has no effect with protocol"),
        ('security = { protocol = "SSL", key = "file:x" }', "security.certificate: missing"),
        ('security = { protocol = "SSL", key_password = "file:x" }', "security.key_password: has no effect without"),
        (
            'security = { protocol = "SSL", truststore = "a.jks", ca = "file:x" }',
            "security.ca: has no effect with truststore, which replaces it",
        ),
        ('security = { protocol = "SSL", keystore = "a.jks" }', "security.keystore_password: missing with keystore"),
        (
            'security = { protocol = "SSL", truststore_password = "env:X" }',
            "security.truststore_password: has no effect without truststore",
        ),
        (
            'security = { protocol = "SASL_SSL", mechanism = "OAUTHBEARER", token_url = "login" }',
            "security.token_url: found ***; allowed: an address such as",
        ),
        (
            'security = { protocol = "SASL_SSL", mechanism = "OAUTHBEARER", password = "env:X", '
            'token_url = "https://x" }',
            "security.username: missing with token_url (the client's id)",
        ),
        (
            'security = { protocol = "SASL_SSL", mechanism = "OAUTHBEARER", username = "u", unsigned = true, '
            'scope = "s" }',
            "security.scope: has no effect with unsigned = true",
        ),
        (
            'security = { protocol = "SASL_SSL", mechanism = "PLAIN", username = "u", password = "env:X", '
            "unsigned = true }",
            'security.unsigned: has no effect with mechanism "PLAIN"; "OAUTHBEARER" uses it',
        ),
        ("security = { check_hostname = false }", "security.check_hostname: has no effect with protocol"),
        (
            'security = { protocol = "SASL_SSL", mechanism = "OAUTHBEARER", token_url = "https://me:hunter2@login/" }',
            "security.token_url: found ***; allowed: an address such as",
        ),
        ('security = { tls_min = "1.3" }', "security.tls_min: has no effect with protocol"),
        (
            'security = { protocol = "SSL", tls_min = "TLSv1.3" }',
            'security.tls_min: found "TLSv1.3"; allowed: "1.2" or "1.3"; did you mean "1.3"?',
        ),
        (
            'security = { protocol = "SSL", ciphers = ["ECDHE-RSA-AES256-GCM-SHA348"] }',
            'did you mean "ECDHE-RSA-AES256-GCM-SHA384"?',
        ),
        ('security = { protocol = "SSL", ciphers = "all" }', "security.ciphers: found"),
        (
            'security = { protocol = "SSL", tls_min = "1.3", ciphers = ["ECDHE-RSA-AES256-GCM-SHA384"] }',
            'security.ciphers: has no effect with tls_min = "1.3"',
        ),
        (
            'security = { protocol = "SASL_SSL", mechanism = "OAUTHBEARER", password = "env:X", token_ca = "file:x" }',
            "security.token_ca: has no effect without token_url",
        ),
        (
            'security = { protocol = "SASL_SSL", mechanism = "OAUTHBEARER", password = "env:X", username = "u", '
            'token_url = "http://x", token_ca = "file:x" }',
            "security.token_ca: has no effect with a token_url that begins with http:",
        ),
        ('security = "PLAIN me hunter2"', "clusters.eu.security: found a string; allowed: a table"),
        (
            'security = { password = "hunter2" }',
            'clusters.eu.security.password: found ***; allowed: a reference: "env:NAME"',
        ),
    ],
)
def test_faults_of_a_cluster(cluster: str, line: str) -> None:
    report = faults(f'[clusters.eu]\n{cluster}\n[clusters.us]\nbootstrap = "us:9092"\n' + FLOW)
    assert line in report
    assert "hunter2" not in report


def test_of_an_unknown_protocol_nothing_more_is_said() -> None:
    report = faults(
        '[clusters.eu]\nbootstrap = "eu:1"\nsecurity = { protocol = "SASL", username = "me" }\n'
        '[clusters.us]\nbootstrap = "us:1"\n' + FLOW
    )
    assert report.splitlines()[0] == "conf.toml: 1 fault"
    assert 'did you mean "SSL"?' in report


def test_an_alias_stands_in_topic_names() -> None:
    report = faults(
        '[clusters."e.u"]\nbootstrap = "eu:9092"\n[clusters.us]\nbootstrap = "us:9092"\n' + flow(from_='"e.u"')
    )
    assert 'clusters.e.u: the alias is not allowed; allowed: up to 64 letters, digits, "_" and "-"' in report


def test_all_faults_come_at_once_in_the_order_of_the_file() -> None:
    report = faults(
        '[clusters.eu]\nbootstrap = "eu"\ncolour = "red"\n[clusters.us]\nbootstrap = "us:9092"\n'
        '[[flows]]\nfrom = "eu"\nto = "uss"\ntopics = ["("]\nrefresh = "soon"\n[runtime]\nlease_ttl = 3\n'
    )
    first, *rest = report.splitlines()
    assert first == "conf.toml: 6 faults"
    assert [line.split(": ")[0].strip() for line in rest] == [f"conf.toml:{line}" for line in (2, 3, 8, 9, 10, 12)]


def test_what_must_be_there() -> None:
    report = faults("")
    assert "conf.toml: clusters: missing; at least" not in report
    assert "conf.toml: clusters: missing; a [clusters.ALIAS] table for each cluster" in report
    assert "conf.toml: flows: missing; at least one [[flows]] table" in report
    assert "flows: found a table; allowed: tables, each under its own [[flows]]" in faults(
        CLUSTERS + "[flows]\nfrom = 'eu'"
    )
    assert "clusters: found 3; allowed: tables, each as [clusters.NAME]" in faults("clusters = 3\n" + FLOW)


def test_a_syntax_error_says_where() -> None:
    assert faults("[clusters.eu\n") == (
        "conf.toml: not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 13)"
    )


def test_two_flows_of_one_name() -> None:
    report = faults(CLUSTERS + FLOW + flow(topics='["payments"]'))
    assert 'conf.toml:11: flows[1]: two flows are named "eu-us"; give one of them a different name = "..."' in report


def test_identity_flows_into_one_topic() -> None:
    report = faults(CLUSTERS + flow(naming='"identity"') + flow(from_='"asia"', naming='"identity"', topics='[".*"]'))
    assert 'the flows "eu-us" and "asia-us" would both copy topics such as "orders" into one topic of "us"' in report


def test_two_flows_share_no_topic_of_one_source() -> None:
    assert "would both copy" in faults(CLUSTERS + FLOW + flow(name='"two"', topics='["ord.*"]'))
    load_text(CLUSTERS + FLOW + flow(name='"two"', topics='[".*"]', exclude='["orders"]'), "conf.toml")
    load_text(CLUSTERS + FLOW + flow(name='"two"', from_='"asia"'), "conf.toml")
    load_text(CLUSTERS + FLOW + flow(name='"two"', separator='"_"'), "conf.toml")


def test_two_flows_of_one_template() -> None:
    template = {"naming": '"dr-{topic}"'}
    assert "would both copy topics" in faults(CLUSTERS + flow(**template) + flow(from_='"asia"', **template))
    load_text(CLUSTERS + flow(**template) + flow(from_='"asia"', naming='"asia-{topic}"'), "conf.toml")


@pytest.mark.parametrize("naming", ["mirrord.{topic}", "__{topic}"])
def test_a_naming_may_not_make_names_of_kafka_or_mirrord(naming: str) -> None:
    report = faults(CLUSTERS + flow(naming=f'"{naming}"'))
    assert f'naming = "{naming}" makes names such as "{naming.replace("{topic}", "orders")}"' in report
    assert "belong to Kafka and mirrord" in report


def test_the_alias_of_a_source_may_not_make_names_of_mirrord() -> None:
    text = CLUSTERS.replace("clusters.eu", "clusters.mirrord")
    assert 'the alias "mirrord" makes names such as "mirrord.orders"' in faults(text + flow(from_='"mirrord"'))
    load_text(text + flow(from_='"mirrord"', separator='"-"'), "conf.toml")


def same_names(source: str, target: str, **settings: str) -> str:
    """A flow that may exist in both directions."""
    alone = {"sync": '{ configs = false, acls = "off" }', "groups": '{ mode = "off" }'}
    records = {"mm2_records": "{ checkpoints = false }"}
    return flow(from_=f'"{source}"', to=f'"{target}"', naming='"identity"', **alone | records | settings)


def test_identity_both_ways() -> None:
    there = same_names("eu", "us", sync='{ acls = "exact" }')
    load_text(CLUSTERS + there + same_names("us", "eu"), "conf.toml")
    load_text(CLUSTERS + there + same_names("us", "eu", sync="{ configs = false }"), "conf.toml")
    report = faults(CLUSTERS + there + same_names("us", "eu", sync='{ acls = "read-only" }'))
    assert "only one of them may sync configs: set sync = { configs = false }" in report
    assert 'only one of them may sync ACLs: set sync = { acls = "off" }' in report
    report = faults(CLUSTERS + there + same_names("us", "eu", groups='{ mode = "follow" }'))
    assert (
        'counts the records of both: set groups = { both_ways = true } in "us-eu", or groups = { mode = "off" }'
        in report
    )


def test_groups_under_the_same_names_both_ways() -> None:
    both = "{ both_ways = true, reverse = true }"
    there, back = same_names("eu", "us", groups=both), same_names("us", "eu")
    assert load_text(CLUSTERS + there + back, "conf.toml").flows[0].groups.both_ways
    report = faults(CLUSTERS + there + same_names("us", "eu", groups=both))
    assert "only one of them may sync groups (with groups.reverse in both directions): set groups = {" in report
    report = faults(CLUSTERS + flow(groups="{ both_ways = true }"))
    assert 'groups.both_ways is for naming = "identity"; found naming = "prefix"' in report
    pairs = [(one, other) for one in ("eu", "us", "asia") for other in ("eu", "us", "asia") if one != other]
    mesh = "".join(there if pair == ("eu", "us") else same_names(*pair) for pair in pairs)
    report = faults(CLUSTERS + mesh)
    assert 'groups.both_ways in "eu-us": "asia-us" copies records of a third cluster' in report
    assert '"asia-eu" copies records of a third cluster' in report


def test_copies_of_their_own_are_refused_where_their_names_would_mislead() -> None:
    alone = {"on_recreated": '"fresh"', "mm2_records": '{ checkpoints = false, offset_syncs = "off" }'}
    assert load_text(CLUSTERS + flow(**alone), "conf.toml").flows[0].on_recreated == "fresh"
    for records in ("{ checkpoints = false }", '{ offset_syncs = "off" }', "{}"):
        report = faults(CLUSTERS + flow(**alone | {"mm2_records": records}))
        assert 'on_recreated = "fresh" cannot be combined with mm2_records' in report
        assert 'use mm2_records = { checkpoints = false, offset_syncs = "off" }, or on_recreated = "keep"' in report
    report = faults(CLUSTERS + flow(on_recreated='"freshly"'))
    assert '"keep" or "fresh"' in report
    there, back = same_names("eu", "us", **alone), same_names("us", "eu")
    line = 'on_recreated = "fresh" in "eu-us" with naming = "identity" in a ring (eu -> us -> eu): a separate copy'
    for text in (there + back, back + there):
        assert faults(CLUSTERS + text).count(line) == 1
    load_text(CLUSTERS + there + same_names("us", "eu", topics='["payments"]'), "conf.toml")
    load_text(CLUSTERS + flow(**alone) + flow(from_='"us"', to='"eu"', topics='[".*"]'), "conf.toml")
    template = flow(naming='"dr-{topic}"', **alone)
    load_text(CLUSTERS + template + flow(from_='"us"', to='"eu"', topics='["local"]'), "conf.toml")


def test_identity_between_each_two_of_three() -> None:
    pairs = [(one, other) for one in ("eu", "us", "asia") for other in ("eu", "us", "asia") if one != other]
    load_text(CLUSTERS + "".join(same_names(*pair) for pair in pairs), "conf.toml")
    report = faults(CLUSTERS + "".join(same_names(*pair) for pair in pairs if pair != ("asia", "us")))
    assert "every two of these clusters need flows in both directions" in report


def test_identity_in_a_row() -> None:
    report = faults(CLUSTERS + same_names("eu", "us") + same_names("us", "asia"))
    assert 'do not reach "asia": under the same names, copies are not copied further; add a flow' in report
    assert 'add a flow from "eu" to "asia"' in report
    load_text(CLUSTERS + same_names("eu", "us") + same_names("us", "asia", topics='["payments"]'), "conf.toml")


def test_identity_rings_are_refused() -> None:
    ring = flow(from_='"us"', to='"asia"', naming='"identity"') + flow(from_='"asia"', to='"eu"', naming='"identity"')
    assert "in a ring (asia -> eu -> us -> asia)" in faults(CLUSTERS + flow(naming='"identity"') + ring)


def test_rings_of_other_names_that_do_not_show_their_path_are_refused() -> None:
    template = flow(naming='"dr-{topic}"', topics='[".*"]')
    back = flow(from_='"us"', to='"eu"', naming='"dr-{topic}"', topics='[".*"]')
    assert 'naming = "dr-{topic}" in a ring (us -> eu -> us)' in faults(CLUSTERS + template + back)
    prefix = flow(from_='"us"', to='"eu"', topics='[".*"]')
    assert "in a ring (us -> eu -> us)" in faults(CLUSTERS + template + prefix)
    assert "in a ring (us -> eu -> us)" in faults(CLUSTERS + flow(naming='"identity"', topics='[".*"]') + prefix)
    local = flow(from_='"us"', to='"eu"', naming='"dr-{topic}"', topics='["local-.*"]')
    load_text(CLUSTERS + flow(naming='"dr-{topic}"') + local, "conf.toml")


def test_identity_both_ways_for_different_topics_is_no_ring() -> None:
    back = flow(from_='"us"', to='"eu"', naming='"identity"', topics='["payments.*"]')
    load_text(CLUSTERS + flow(naming='"identity"') + back, "conf.toml")
    load_text(CLUSTERS + FLOW + flow(from_='"us"', to='"eu"'), "conf.toml")
