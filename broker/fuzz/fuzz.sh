#!/bin/bash
# fuzz.sh run:  each target in turn, for FUZZ_SECONDS (60) or until it has had FUZZ_RUNS inputs; says how many, and what they reached
# fuzz.sh keep: what was found joins the corpus; of that stays what covers everything, and what people gave a name
# FUZZ_TARGETS names those of the targets that are meant (default: all, which are the folders of corpus/).
set -euo pipefail
cd "$(dirname "$0")"
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=../../target/fuzz
# These run without the compiler's records of comparisons and of indirect calls, which slow them most and teach them least: a step of `queues` is any two
# bytes, and `layers` has words.dict for its formats. Nor do they give each input's large blocks back to the kernel, which has to clear them for the next.
lean=" layers queues "
# Inputs of these two are steps, some 200 and 64 of them: longer ones only take longer. The others: 4096.
declare -A longest=([operations]=1024 [queues]=160)
limits=(-timeout=10 -rss_limit_mb=512)

build() { # TARGET; $fuzzer is its program then
    local build_dir=$target_dir
    if [[ $lean == *" $1 "* ]]; then
        build_dir=$target_dir/lean
        local -x RUSTFLAGS
        RUSTFLAGS=$(sed -n 's/^ *"\(-C.*\)",$/\1/p' .cargo/config.toml | sed '/trace-compares/d; s/level=4/level=3/' | tr '\n' ' ')
        export MALLOC_MMAP_THRESHOLD_=$((1 << 20)) MALLOC_TRIM_THRESHOLD_=$((16 << 20))
    else
        # What is large is given back at once: what the process then takes is what is kept, without the holes that glibc's heap would get.
        export MALLOC_MMAP_THRESHOLD_=65536
        unset MALLOC_TRIM_THRESHOLD_
    fi
    cargo build --quiet --locked --release --target "$host" --target-dir "$build_dir"
    fuzzer=$build_dir/$host/release/srtm-fuzz
}

run() { # TARGET
    local found=$target_dir/found/$1 log=$target_dir/$1.log bound=(-max_total_time="${FUZZ_SECONDS:-60}")
    [ -z "${FUZZ_RUNS:-}" ] || bound=(-runs="$FUZZ_RUNS")
    mkdir -p "$found"
    if ! FUZZ_TARGET=$1 "$fuzzer" "$found" "corpus/$1" "${limits[@]}" "${bound[@]}" -max_len="${longest[$1]:-4096}" -dict=words.dict \
        -artifact_prefix="$target_dir/$1-" -print_final_stats=1 2>"$log"; then
        grep -E 'panicked|SUMMARY|Test unit written' -A 2 "$log" >&2 || tail "$log" >&2
        echo "$1: FAILED; again with FUZZ_TARGET=$1 broker/fuzz/$fuzzer FILE; the whole story: broker/fuzz/$log" >&2
        return 1
    fi
    awk -v name="$1" '
        function value(key, i) { for (i = 1; i < NF; i++) if ($i == key) return $(i + 1) + 0 }
        /INITED/ { before = value("rss:") }
        /DONE/ { edges = value("cov:"); after = value("rss:") }
        /number_of_executed_units/ { inputs = $2 }
        /slowest_unit_time_sec/ { slowest = $2 }
        END { printf "%-10s %9d inputs, %5d edges reached, %d MiB before, %d after, the slowest input %d s\n", name, inputs, edges, before, after, slowest }' "$log"
}

keep() { # TARGET
    local chosen=$target_dir/chosen/$1
    rm -rf "$chosen" && mkdir -p "$chosen" "$target_dir/found/$1"
    FUZZ_TARGET=$1 "$fuzzer" -set_cover_merge=1 -use_counters=0 -max_len=600 "$chosen" "corpus/$1" "$target_dir/found/$1" 2>"$target_dir/$1.log"
    find "corpus/$1" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete # those with names of their own stay
    find "$chosen" -type f -exec cp -t "corpus/$1/" {} +
}

command=${1:?run or keep}
for target in ${FUZZ_TARGETS:-$(ls corpus)}; do
    build "$target"
    "$command" "$target"
done
