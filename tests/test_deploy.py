"""The Dockerfile, the manifest of Kubernetes and the unit of systemd fit the commands and one another.

None of them is built or started here: what they name is looked up in the code.
"""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from cronsensus.cli import cli
from cronsensus.config import load_settings
from cronsensus.node.node import STUCK_CHECK_EVERY, STUCK_CHECKS
from cronsensus.timing.durations import parse_duration

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
MANIFEST = (ROOT / "deploy" / "kubernetes.yaml").read_text()
UNIT = ROOT / "deploy" / "cronsensus@.service"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
SLACK = 10
"""Seconds by which what kills a node is to be more patient than its drain."""


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [one for one in yaml.safe_load_all(MANIFEST) if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return dict(found)


NODE, DASHBOARD = named("Deployment", "cronsensus-node"), named("Deployment", "cronsensus-dashboard")


def pod(deployment: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod of a deployment, and its one container."""
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    return spec, container


def understands(words: list[str]) -> None:
    """Fail unless the command line takes these words."""
    command = cli.get_command(Context(cli), words[0])
    assert command is not None, words[0]
    command.make_context(words[0], words[1:])


# --- Docker -----------------------------------------------------------------------------------------------------------


def instructions(name: str) -> list[str]:
    lines = re.sub(r"\\\n", " ", DOCKERFILE).splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def test_the_image_is_built_of_what_is_there_and_runs_as_nobody() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for line in instructions("COPY") if "--from" not in line for name in line.split()[:-1]}
    assert {name.removeprefix("./") for name in copied} == kept
    assert all((ROOT / name).exists() for name in kept)
    [extras] = re.findall(r"\.\[([a-z,]+)\]", "".join(instructions("RUN")))
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    [user] = instructions("USER")
    assert user.isdecimal()
    assert int(user) > 0
    assert pod(NODE)[0]["securityContext"]["runAsUser"] == int(user)
    assert len(instructions("FROM")) == 2
    assert instructions("ENTRYPOINT") == ['["cronsensus"]']  # a list: no shell between the signal and the node


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def test_labels_ports_and_secrets_meet() -> None:
    for deployment in (NODE, DASHBOARD):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels == deployment["metadata"]["labels"]
        _, container = pod(deployment)
        ports = {port["name"] for port in container["ports"]}
        probes = [container[name] for name in PROBES if name in container]
        assert probes
        assert {(probe.get("httpGet") or probe.get("tcpSocket"))["port"] for probe in probes} <= ports
        for variable in container["env"]:
            if "valueFrom" in variable:
                key = variable["valueFrom"]["secretKeyRef"]["key"]
                assert f"{key}=" in MANIFEST.split("apiVersion", 1)[0], f"the head does not say how to make {key}"
    budget = named("PodDisruptionBudget", "cronsensus-node")["spec"]
    assert budget["selector"]["matchLabels"] == NODE["metadata"]["labels"]
    assert 1 <= budget["minAvailable"] < NODE["spec"]["replicas"] == 3
    service = named("Service", "cronsensus-dashboard")["spec"]
    assert service["selector"] == DASHBOARD["metadata"]["labels"]
    assert service["ports"][0]["targetPort"] == pod(DASHBOARD)[1]["ports"][0]["name"]


def test_commands_settings_and_probes_are_ours() -> None:
    served = "".join(
        (ROOT / "src/cronsensus" / name).read_text() for name in ("metrics/serving.py", "dashboard/healthz.py")
    )
    for deployment in (NODE, DASHBOARD):
        _, container = pod(deployment)
        understands(container["args"])
        for variable in container["env"]:
            setting = variable["name"].removeprefix("CRONSENSUS_").lower()
            assert setting in {"url", "dashboard_token"} or hasattr(load_settings({}, {}), setting)
        paths = [container[name]["httpGet"]["path"] for name in PROBES if "httpGet" in container.get(name, {})]
        assert all(f'"{path}"' in served for path in paths)
        port = container["ports"][0]["containerPort"]
        assert f"EXPOSE 8080 {port}" in DOCKERFILE or f"EXPOSE {port}" in DOCKERFILE


def test_a_pod_may_write_nowhere_and_become_nobody() -> None:
    for deployment in (NODE, DASHBOARD):
        spec, container = pod(deployment)
        assert spec["securityContext"]["runAsNonRoot"] is True
        rules = container["securityContext"]
        assert (rules["allowPrivilegeEscalation"], rules["readOnlyRootFilesystem"]) == (False, True)
        assert rules["capabilities"] == {"drop": ["ALL"]}


def test_whoever_kills_a_node_waits_for_its_drain() -> None:
    spec, container = pod(NODE)
    [drain] = [one["value"] for one in container["env"] if one["name"] == "CRONSENSUS_DRAIN_TIMEOUT"]
    assert spec["terminationGracePeriodSeconds"] >= parse_duration(drain, what="drain").total_seconds() + SLACK
    service = read_unit()["Service"]
    words = shlex.split(service["ExecStart"])
    drain = words[words.index("--drain-timeout") + 1]
    assert int(service["TimeoutStopSec"]) >= parse_duration(drain, what="drain").total_seconds() + SLACK


# --- systemd ----------------------------------------------------------------------------------------------------------


def read_unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    return unit


def test_the_unit_starts_a_node_that_tells_systemd_of_itself() -> None:
    service = read_unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/cronsensus")
    understands(words)
    assert service["Type"] == "notify"
    # The node gives up rounds that hang by itself, and says where they were.
    assert int(service["WatchdogSec"]) > STUCK_CHECK_EVERY * STUCK_CHECKS


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_reads_the_unit_without_a_word(tmp_path: Path) -> None:
    read = tmp_path / "cronsensus@1.service"
    text = UNIT.read_text().replace("/srv/shop/.venv/bin/cronsensus", f"{Path(sys.executable).parent}/cronsensus")
    read.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(read)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "cronsensus@1" in line]) == (0, [])
