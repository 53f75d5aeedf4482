#!/usr/bin/env bash
# Format all tracked C++ and CUDA files in place.

weft_format() { list_sources | xargs -0 -r clang-format -i; }
