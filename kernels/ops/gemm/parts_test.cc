#include "kernels/ops/gemm/parts.h"

#include "gtest/gtest.h"

namespace weft::ops::internal {
namespace {

TEST(PartsTest, WhatFitsIsOnePart) {
  EXPECT_GE(RowsOfPart(1, 2), 1);
  EXPECT_GE(RowsOfPart(8192, 2 * 2048), 8192);
  EXPECT_GE(RowsOfPart(2048, 2 * 100000), 2048);
}

TEST(PartsTest, PartsAreEvenAndFit) {
  for (const int64_t rows : {8192, 151936, 1000003}) {
    for (const int64_t columns : {2048, 32000, 151936}) {
      const int64_t row_bytes = 2 * columns;
      const int64_t part = RowsOfPart(rows, row_bytes);
      EXPECT_EQ(part % kPartUnit, 0);
      EXPECT_LE(part * row_bytes, kMaxPartBytes + kPartUnit * row_bytes);
      const int64_t parts = (rows + part - 1) / part;
      EXPECT_LE(parts, rows * row_bytes / kMaxPartBytes + 1);
    }
  }
}

}  // namespace
}  // namespace weft::ops::internal
