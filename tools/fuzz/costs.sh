# SPDX-License-Identifier: Apache-2.0
# To be sourced: a fuzz target as it is built for use, each input within what one of its size may cost (cost.c).
#   costs FOLDER SECONDS MAX_BYTES FLAG-OR-SOURCE...     a corpus is taken from FOLDER/corpus
costs() {
  local work=$1 seconds=$2 max_bytes=$3
  mkdir -p "$work/corpus"
  clang -fsanitize=fuzzer -O2 -g -std=gnu11 -DLLVMFuzzerTestOneInput=fuzz_one \
    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free -o "$work/costs" tools/fuzz/cost.c "${@:4}" -lpthread
  # Its own limits only end what never comes back.
  "$work/costs" -max_total_time="$seconds" -max_len="$max_bytes" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$work/" "$work/corpus"
}
