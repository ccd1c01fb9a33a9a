# SPDX-License-Identifier: Apache-2.0
# To be sourced. libFuzzer's limits that stand for what an input of some size may cost (docs/security.md), and a fuzz
# target as it is built for use, each input within what one of its own size may cost (cost.c).

# limits MAX_BYTES     of the largest input; by the clock ten times the processor's time, since others run, too
limits() {
  local memory_mb=$(((300000000 + 50 * $1) / 1048576 + 1))
  echo "-max_len=$1 -timeout=$((10 * (2000000 + 10 * $1) / 1000000 + 1)) -malloc_limit_mb=$memory_mb"
}

# costs FOLDER SECONDS MAX_BYTES FLAG-OR-SOURCE...     a corpus is taken from FOLDER/corpus
costs() {
  local work=$1 seconds=$2 max_bytes=$3
  mkdir -p "$work/corpus"
  clang -fsanitize=fuzzer -O2 -g -std=gnu11 -DLLVMFuzzerTestOneInput=fuzz_one \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free -o "$work/costs" tools/fuzz/cost.c "${@:4}" -lpthread
  "$work/costs" -max_total_time="$seconds" $(limits "$max_bytes") -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="$work/" "$work/corpus"
}
