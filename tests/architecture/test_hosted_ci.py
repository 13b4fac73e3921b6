"""What nobody runs here is at least held to what is true: the hosted matrix, the hooks, and the list of targets."""

from __future__ import annotations

import re
import tomllib

import yaml

from tests.architecture.sources import ROOT
from tests.servers import VERSIONS

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PHONY = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))


def test_every_step_of_the_workflow_is_a_checkout_or_a_make_target():
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    ran = [step["run"] for step in steps if "run" in step]
    assert {step["uses"].partition("@")[0] for step in steps if "uses" in step} == {"actions/checkout"}
    assert {tuple(command.split()[:1]) for command in ran} == {("make",)}
    assert {target for command in ran for target in command.split()[1:]} <= PHONY


def test_the_matrix_is_what_the_package_promises():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert tuple(leg["version"] for leg in matrix["postgres"]) == VERSIONS


def test_hooks_are_of_this_repository_and_call_what_exists():
    (repository,) = HOOKS["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system", "nothing is fetched"
        program, *arguments = hook["entry"].split()
        if program == "make":
            assert set(arguments) <= PHONY
        else:
            assert (ROOT / f"{arguments[-1].replace('.', '/')}.py").is_file()


def test_make_lists_every_target():
    listed = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert listed == PHONY - {"help", "interpreter"}


def test_issue_templates_and_the_workflow_can_be_read():
    for path in (ROOT / ".github").rglob("*.yml"):
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict), path
