#!/usr/bin/env bash
# Records a real training run and serves it. Usage: bash examples/demo.sh [profiler-server demo options]
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/setup.sh

make_environment demo
exec .venv/bin/profiler-server demo "$@"
