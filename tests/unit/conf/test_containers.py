"""The container file and the manifest for KubeRay are valid as far as that shows without Docker and Kubernetes."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from mirrord.config.loader import load_text
from mirrord.model.version import version

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "conf" / "container" / "Dockerfile"
MANIFEST = ROOT / "conf" / "kuberay" / "mirrord.yaml"
# It comes with Ray, without types.
yaml: Any = importlib.import_module("yaml")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the container file with their arguments, continued lines joined."""
    whole = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in whole.splitlines() if line.strip()]


def documents() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


def groups() -> list[dict[str, Any]]:
    spec = documents()["RayCluster"]["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def container(group: dict[str, Any]) -> dict[str, Any]:
    (only,) = group["template"]["spec"]["containers"]
    return only


def test_the_container_file_knows_its_instructions_and_what_it_copies() -> None:
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {name for name, _ in instructions()} == known | {"ENTRYPOINT", "CMD"}
    declared = {value.partition("=")[0] for name, value in instructions() if name == "ARG"}
    used = set(re.findall(r"\$\{(\w+)\}", " ".join(value for name, value in instructions() if name == "FROM")))
    assert used == declared
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    for name, value in instructions():
        if name == "COPY" and not value.startswith("--from"):
            for source in value.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, f"{source} is kept out of the image"


def test_the_container_runs_mirrord_as_an_ordinary_user() -> None:
    last = dict(instructions())  # the last of each counts
    assert last["USER"] == "1000:1000"
    assert [name for name, _ in instructions()].index("USER") < [name for name, _ in instructions()].index("CMD")
    assert last["ENTRYPOINT"] == '["/usr/bin/tini", "--", "mirrord"]'
    assert last["CMD"] == '["start", "/etc/mirrord/conf.toml"]'
    assert "/livez" in last["HEALTHCHECK"]


def test_the_image_contains_only_locked_packages() -> None:
    commands = [
        shlex.split(each) for name, value in instructions() if name == "RUN" for each in re.split(r"&&|;", value)
    ]
    pips = [command for command in commands if command[0].endswith("/pip")]
    assert len(pips) == 4
    for command in pips:
        is_locked = "--require-hashes" in command and command[-1].endswith(".lock")
        is_own = {"--no-deps", "--no-build-isolation"} <= {*command} or {"--no-deps", "--no-index"} <= {*command}
        assert is_locked or is_own, command


def test_the_manifest_has_what_a_ray_cluster_must_have() -> None:
    cluster = documents()["RayCluster"]
    assert cluster["apiVersion"] == "ray.io/v1"
    assert cluster["metadata"]["annotations"] == {"ray.io/overwrite-container-cmd": "true"}
    locked = re.search(r"^ray(?:\[\S*\])?==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert cluster["spec"]["rayVersion"] == locked[1]
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    for group in groups():
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    assert workers["groupName"]


def check_hardened(pod: dict[str, Any], only: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = only["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    # Python, Ray and Spark need a temporary folder, and mirrord keeps its state in the home folder.
    assert {"/tmp", "/var/lib/mirrord"} <= {mount["mountPath"] for mount in only["volumeMounts"]}


def test_the_scheduled_job_is_as_unprivileged_as_the_daemon() -> None:
    job = yaml.safe_load((ROOT / "conf" / "jobs" / "cronjob.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    check_hardened(pod, only)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {mount["name"] for mount in only["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_other_pods_reach_only_the_http_api() -> None:
    policy = documents()["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == {"ray.io/cluster": documents()["RayCluster"]["metadata"]["name"]}
    assert policy["policyTypes"] == ["Ingress"]
    own, others = policy["ingress"]
    assert own["from"] == [{"podSelector": policy["podSelector"]}]
    (port,) = others["ports"]
    listen = load_text(documents()["ConfigMap"]["data"]["conf.toml"], "conf.toml").http.listen
    assert listen is not None
    assert port == {"protocol": "TCP", "port": listen.port}


@pytest.mark.parametrize("group", groups(), ids=["head", "workers"])
def test_every_pod_of_the_manifest(group: dict[str, Any]) -> None:
    pod, only = group["template"]["spec"], container(group)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert (
        f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == dict(instructions())["USER"]
    )
    check_hardened(pod, only)
    assert only["image"] == f"mirrord:{version()}"
    assert pod["terminationGracePeriodSeconds"] >= 20, "a drain takes up to ten seconds"
    assert {mount["name"] for mount in only["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert only["resources"]["requests"].keys() == {"cpu", "memory"}
    assert all(shlex.split(argument) for argument in only["args"])
    assert all(isinstance(each["value"], str) for each in only["env"])


def test_the_heads_pod_is_the_daemon_and_its_probes_ask_its_door() -> None:
    head = container(groups()[0])
    config = load_text(documents()["ConfigMap"]["data"]["conf.toml"], "conf.toml")
    listen = config.http.listen
    assert listen is not None
    assert {port["name"]: port["containerPort"] for port in head["ports"]}["mirrord"] == listen.port
    assert config.http.token is not None, "others than this pod reach it"
    assert config.ray.address == "auto"
    probes = {kind: head[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["port"] for probe in probes.values()} == {"mirrord"}
    (mounted,) = (mount["mountPath"] for mount in head["volumeMounts"] if mount["name"] == "conf")
    assert f"exec mirrord start {mounted}/conf.toml" in " ".join(head["args"])
    assert "password" not in MANIFEST.read_text().replace('password = "env:', "").lower().replace("us_password", "")
