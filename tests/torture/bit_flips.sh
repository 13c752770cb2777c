#!/bin/sh
# Ten thousand flipped bits in a checkpoint of 50 MB, or PITSTOP_FLIPS of them: each is found and named.
set -eu
cd "$(dirname "$0")/../.."
PITSTOP_FLIPS=${PITSTOP_FLIPS:-10000} "${CARGO:-cargo}" test --test bit_flips -- --nocapture
