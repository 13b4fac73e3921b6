"""The tools: shell scripts, so that any small image can run them. `$1` is the argument of the run."""

TOOLS = {
    "echo": 'echo "$1"',
    "word_count": 'echo "$1" | wc -w',
    "sleep": 'sleep "$1"; echo "slept $1 s"',
    "exit": 'echo "about to exit with $1" >&2; exit "$1"',
}
