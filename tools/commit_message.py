"""Checks the subject of a commit; a hook calls it (.pre-commit-config.yaml).

python -m tools.commit_message FILE
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72
PREFIX = re.compile(r"^(?:\w+(?:\([^)]*\))?!?: |\[)")
MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")


def what_is_wrong(message: str) -> list[str]:
    """The rules of CONTRIBUTING.md that a subject breaks. That it is an imperative sentence no program can tell."""
    subject, _, rest = message.partition("\n")
    if subject.startswith(MADE_BY_GIT):
        return []
    problems = []
    if not subject.strip():
        problems.append("the first line is empty")
    if len(subject) > LONGEST:
        problems.append(f"the subject has {len(subject)} characters, and {LONGEST} is the most")
    if PREFIX.match(subject):
        problems.append("the subject begins with a prefix")
    if subject.endswith("."):
        problems.append("the subject ends with a full stop")
    if subject[:1].islower():
        problems.append("the subject does not begin with a capital letter")
    if rest and not rest.startswith("\n"):
        problems.append("the line after the subject is not empty")
    return problems


def main(arguments: list[str]) -> int:
    lines = Path(arguments[0]).read_text(encoding="utf-8").splitlines()
    problems = what_is_wrong("\n".join(line for line in lines if not line.startswith("#")))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
