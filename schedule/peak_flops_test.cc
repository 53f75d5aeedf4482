#include "schedule/peak_flops.h"

#include "gtest/gtest.h"

namespace weft::schedule {
namespace {

TEST(PeakFlopsTest, IsThatOfTheDeviceByItsWholeName) {
  EXPECT_EQ(PeakFlops("cuda:0 NVIDIA H200", v1::NUMBER_FORMAT_BF16), 989.4e12);
  EXPECT_EQ(PeakFlops("cuda:7 NVIDIA H200 NVL", v1::NUMBER_FORMAT_BF16),
            835.5e12);
}

TEST(PeakFlopsTest, OthersAreNotKnown) {
  for (const char* device :
       {"cpu", "", "cuda:0", "cuda:0 NVIDIA H2000", "NVIDIA H200"}) {
    EXPECT_EQ(PeakFlops(device, v1::NUMBER_FORMAT_BF16), std::nullopt)
        << device;
  }
  EXPECT_EQ(PeakFlops("cuda:0 NVIDIA H200", v1::NUMBER_FORMAT_FP32),
            std::nullopt);
  EXPECT_EQ(PeakFlops("cuda:0 NVIDIA H200", v1::NUMBER_FORMAT_UNSPECIFIED),
            std::nullopt);
}

}  // namespace
}  // namespace weft::schedule
