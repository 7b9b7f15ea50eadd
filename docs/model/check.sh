#!/bin/bash
# Checks leases.pml (the rule "keep", then timed leases) and gdrl.pml exhaustively within their bounds. What pan finds it writes down as a trail (spin -t).
set -euo pipefail
command -v spin >/dev/null || { echo "missing: spin (Debian: apt-get install spin)" >&2; exit 1; }
command -v cc >/dev/null || { echo "missing: a C compiler as cc (Debian: apt-get install gcc libc6-dev)" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

check() { # model, bounds
  local model=$here/$1
  shift
  echo "checking $(basename "$model") with $*"
  spin "$@" -a "$model" >/dev/null
  cc -O3 -w -DSAFETY -DCOLLAPSE -DMEMLIM=8000 -o pan pan.c
  ./pan -E -m20000000 >found
  grep -E 'errors:|states, stored' found
  grep -q 'errors: 0' found && ! grep -q 'Search not completed' found || { cat found >&2; spin "$@" -t -T "$model" >&2; exit 1; }
}

check leases.pml -DKEEP -DVERSIONS="${KEEP_VERSIONS:-6}" -DLIVES=2 -DANSWERS=1
check leases.pml -DVERSIONS="${TIMED_VERSIONS:-4}" -DLIVES=1 -DANSWERS=1
check leases.pml -DVERSIONS=3 -DLIVES=2 -DANSWERS=1 # timed leases of brokers that die and begin anew
check gdrl.pml -DVERSIONS="${GDRL_VERSIONS:-6}" -DLIVES=2 -DPOOLS=1 -DNUMBERS=1 # brokers die and begin anew
check gdrl.pml -DVERSIONS=6 -DLIVES=1 -DPOOLS=2 -DNUMBERS=1                     # a second pool, into which messages of the first come
check gdrl.pml -DVERSIONS=5 -DLIVES=1 -DPOOLS=1 -DNUMBERS=2                     # offer after offer
