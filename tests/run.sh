#!/usr/bin/env bash
# Builds everything into build/ and runs all tests. The last line is "N passed, N failed".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source packaging/common.sh

need g++ meson ninja-build pkg-config cmake \
  nlohmann-json3-dev libfmt-dev libeigen3-dev zlib1g-dev libcli11-dev doctest-dev libbenchmark-dev

if ! { configure tests examples bench json fmt eigen && meson compile -C build; }; then
  echo "The build failed; no test was run."
  echo "0 passed, 1 failed"
  exit 1
fi

rm -f build/meson-logs/testlog.json
meson test -C build --no-rebuild --print-errorlogs || true
python3 tests/house/tally.py build/meson-logs/testlog.json
