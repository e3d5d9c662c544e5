#!/usr/bin/env bash
# The gate: installs what the tests need (Chromium and Node too), then format, lint, strict types, tests, contracts.
# Usage: bash tests/run.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/setup.sh

make_environment test
command -v chromium >/dev/null || install_debian chromium
command -v node >/dev/null || install_debian nodejs

say "Format and lint"
.venv/bin/ruff format --check --quiet .
.venv/bin/ruff check --quiet .
say "Types"
.venv/bin/mypy
say "Tests and contracts"
exec .venv/bin/python -m pytest "$@"
