#!/usr/bin/env bash
# From nothing to a plan: builds the dynapipe command, plans one global batch of the example lengths and checks it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source packaging/common.sh

need g++ meson ninja-build pkg-config nlohmann-json3-dev libfmt-dev zlib1g-dev libcli11-dev libeigen3-dev

configure examples json fmt eigen
ninja -C build examples/dynapipe

out=build/quickstart
mkdir -p "$out"
show() {
  echo
  echo "\$ $*"
  "$@"
}

show build/examples/dynapipe plan --lengths examples/data/lengths.csv --model gpt-6.7b --cluster a100-80g \
  --pp 4 --dp 2 --tp 1 --batch-tokens 65536 --batch 15 \
  --out "$out/plan.json" --trace "$out/trace.json" --draw "$out/timeline.svg"
show build/examples/dynapipe check "$out/plan.json"

cat <<END

Written to $out/:
  plan.json     what every device does, and when
  trace.json    the same as a timeline: open it in https://ui.perfetto.dev
  timeline.svg  the same as a picture: open it in a browser
END
