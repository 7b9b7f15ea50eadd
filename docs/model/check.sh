#!/bin/bash
# Checks leases.pml exhaustively within its bounds: the rule "keep", then timed leases. What pan finds it writes down as a trail (spin -t).
set -euo pipefail
command -v spin >/dev/null || { echo "missing: spin (Debian: apt-get install spin)" >&2; exit 1; }
command -v cc >/dev/null || { echo "missing: a C compiler as cc (Debian: apt-get install gcc libc6-dev)" >&2; exit 1; }
model=$(cd "$(dirname "$0")" && pwd)/leases.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for bounds in "-DKEEP -DVERSIONS=${KEEP_VERSIONS:-6} -DLIVES=2 -DANSWERS=1" "-DVERSIONS=${TIMED_VERSIONS:-4} -DLIVES=1 -DANSWERS=1"; do
  echo "checking with $bounds"
  # shellcheck disable=SC2086 # the bounds are several words
  spin $bounds -a "$model" >/dev/null
  cc -O3 -DSAFETY -DCOLLAPSE -DMEMLIM=8000 -o pan pan.c
  ./pan -E -m20000000 >found
  grep -E 'errors:|states, stored' found
  grep -q 'errors: 0' found && ! grep -q 'Search not completed' found || { cat found >&2; spin $bounds -t -T "$model" >&2; exit 1; }
done
