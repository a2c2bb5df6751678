#!/usr/bin/env bash
# run.sh SECONDS [TARGET...]: builds the fuzz targets with coverage instrumentation and runs each for so long, from
# the fixtures as seeds. Exits non-zero on a find, which is left in artifacts/. Needs a C++ compiler; no nightly.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?usage: run.sh SECONDS [TARGET...]}
shift
targets=${*:-json sse answers index_anthropic index_openai_chat index_openai_responses index_gemini}
host=$(rustc -vV | sed -n 's/^host: //p')
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
CARGO_TARGET_DIR=target RUSTFLAGS="$flags" cargo build --locked --release --target "$host" --quiet
mkdir -p artifacts
fuzz() {
    local target=$1 corpus=corpus/$1
    mkdir -p "$corpus"
    for fixture in ../../fixtures/*/*/*; do
        cp "$fixture" "$corpus/$(echo "$fixture" | tr -c 'A-Za-z0-9\n' '-')"
    done
    "target/$host/release/$target" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix=artifacts/ "$corpus" >"artifacts/$target.log" 2>&1
}

# Two at a time: one for each core that a small machine has.
set -- $targets
while [ $# -gt 0 ]; do
    pair=("$1" ${2:+"$2"})
    shift ${#pair[@]}
    echo "fuzzing ${pair[*]} for ${seconds}s"
    jobs=()
    for target in "${pair[@]}"; do
        fuzz "$target" &
        jobs+=($!)
    done
    for at in "${!pair[@]}"; do
        target=${pair[$at]}
        wait "${jobs[$at]}" || {
            tail -n 40 "artifacts/$target.log"
            echo "$target: a find"
            exit 1
        }
        grep -E "stat::number_of_executed_units|Done" "artifacts/$target.log"
    done
done
