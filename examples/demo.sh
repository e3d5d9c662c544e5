#!/usr/bin/env bash
# Records a real training run and serves it. Usage: bash examples/demo.sh [stepscope demo options]
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/setup.sh

make_environment demo
exec .venv/bin/stepscope demo "$@"
