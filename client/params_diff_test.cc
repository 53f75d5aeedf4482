#include "client/params_diff.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;

struct Fragment {
  std::string name;
  std::vector<float> values;
};

std::string NewFolder() {
  std::string pattern = ::testing::TempDir() + "/params.XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  return pattern;
}

void WriteRank(const std::string& folder, int rank,
               const std::vector<Fragment>& fragments) {
  checkpoint::SafetensorsWriter writer;
  for (const Fragment& fragment : fragments) {
    const int64_t n = static_cast<int64_t>(fragment.values.size());
    EXPECT_OK(
        writer.Add(fragment.name, DType::kF32, {n}, fragment.values.data()));
  }
  EXPECT_OK(
      writer.Write(absl::StrCat(folder, "/rank-0000", rank, ".safetensors")));
}

// One file per element of `ranks`.
ParamFolder MakeFolder(const std::vector<std::vector<Fragment>>& ranks) {
  const std::string folder = NewFolder();
  for (size_t i = 0; i < ranks.size(); ++i) WriteRank(folder, i, ranks[i]);
  auto opened = ParamFolder::Open(folder);
  EXPECT_OK(opened);
  return *std::move(opened);
}

TEST(ParamsDiffTest, TheSameParametersCutOtherwiseAreIdentical) {
  const ParamFolder one =
      MakeFolder({{{"w@0", {1, 2, 3, 4, 5, 6}}, {"a@b@0", {7}}}});
  const ParamFolder three = MakeFolder({{{"w@2", {3}}},
                                        {{"w@0", {1, 2}}, {"a@b@0", {7}}},
                                        {{"w@3", {4, 5, 6}}}});
  const ParamsDiff diff = CompareParams(one, three);
  EXPECT_TRUE(diff.identical()) << diff.first;
  EXPECT_EQ(diff.params, 2);
  EXPECT_EQ(diff.elements, 7);
  EXPECT_EQ(diff.differing_elements, 0);
}

TEST(ParamsDiffTest, TheFirstAndTheLargestDifferenceAreNamed) {
  const ParamFolder a = MakeFolder({{{"v@0", {1, 2}}, {"w@0", {4, 8, 16}}}});
  const ParamFolder b =
      MakeFolder({{{"v@0", {1, 2.5}}, {"w@0", {2, 8}}}, {{"w@2", {17}}}});
  const ParamsDiff diff = CompareParams(a, b);
  EXPECT_FALSE(diff.identical());
  EXPECT_EQ(diff.first, "v: element 1 is 2 and 2.5");
  EXPECT_EQ(diff.differing_params, 2);
  EXPECT_EQ(diff.differing_elements, 3);
  EXPECT_EQ(diff.max_relative_error, 0.5);
  EXPECT_EQ(diff.max_at, "w element 0");
  EXPECT_FALSE(diff.is_structural());
}

TEST(ParamsDiffTest, BitsDecideNotValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const ParamFolder a = MakeFolder({{{"w@0", {0.0f, nan}}}});
  const ParamFolder zero = MakeFolder({{{"w@0", {-0.0f, nan}}}});
  const ParamsDiff signs = CompareParams(a, zero);
  EXPECT_EQ(signs.first, "w: element 0 is 0 and -0");
  EXPECT_EQ(signs.differing_elements, 1);
  EXPECT_EQ(signs.max_relative_error, 0);
  const ParamFolder number = MakeFolder({{{"w@0", {0.0f, 1}}}});
  EXPECT_TRUE(std::isinf(CompareParams(a, number).max_relative_error));
}

TEST(ParamsDiffTest, MissingAndOtherwiseSizedParametersAreStructural) {
  const ParamFolder a = MakeFolder({{{"v@0", {1}}, {"w@0", {1, 2}}}});
  const ParamFolder fewer = MakeFolder({{{"w@0", {1, 2}}}});
  const ParamFolder shorter = MakeFolder({{{"v@0", {1}}, {"w@0", {1}}}});
  EXPECT_EQ(CompareParams(a, fewer).first, "v: only in A");
  EXPECT_EQ(CompareParams(fewer, a).first, "v: only in B");
  EXPECT_TRUE(CompareParams(a, fewer).is_structural());
  EXPECT_EQ(CompareParams(a, fewer).only_in_a, 1);
  EXPECT_EQ(CompareParams(fewer, a).only_in_b, 1);
  EXPECT_EQ(CompareParams(a, shorter).other_shapes, 1);
  EXPECT_EQ(CompareParams(a, shorter).first, "w: 2 F32 and 1 F32");
}

TEST(ParamsDiffTest, FragmentsThatDoNotCoverAreRefused) {
  const auto open = [](const std::vector<std::vector<Fragment>>& ranks) {
    const std::string folder = NewFolder();
    for (size_t i = 0; i < ranks.size(); ++i) WriteRank(folder, i, ranks[i]);
    return ParamFolder::Open(folder);
  };
  EXPECT_THAT(open({{{"w@0", {1, 2}}}, {{"w@1", {2}}}}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("w: a fragment begins at 1, inside")));
  EXPECT_THAT(open({{{"w@0", {1}}}, {{"w@2", {2}}}}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("w: a fragment begins at 2, leaving a hole")));
  EXPECT_THAT(open({{{"w", {1}}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"w\" is not named param@begin")));
  EXPECT_THAT(open({}), StatusIs(absl::StatusCode::kNotFound,
                                 HasSubstr("has no rank-*.safetensors")));
  EXPECT_THAT(ParamFolder::Open("/nonexistent"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent")));
}

TEST(ParamsDiffTest, AnIncompleteFolderIsRefused) {
  const std::string without_first = NewFolder();
  WriteRank(without_first, 1, {{"w@0", {1}}});
  EXPECT_THAT(ParamFolder::Open(without_first),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("there is rank-00001.safetensors but no "
                                 "rank-00000.safetensors")));
  const std::string with_gap = NewFolder();
  for (int rank : {0, 1, 3}) WriteRank(with_gap, rank, {});
  EXPECT_THAT(ParamFolder::Open(with_gap),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("but no rank-00002.safetensors")));
  const std::string empty = NewFolder();
  WriteRank(empty, 0, {});
  EXPECT_THAT(ParamFolder::Open(empty),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("the files hold no parameters")));
}

TEST(ParamsDiffTest, TheWorldOfTheFilesCounts) {
  const std::string folder = NewFolder();
  const float value = 1;
  checkpoint::SafetensorsWriter writer;
  EXPECT_OK(writer.Add("w@0", DType::kF32, {1}, &value));
  writer.SetMetadata("world", "2");
  EXPECT_OK(writer.Write(folder + "/rank-00000.safetensors"));
  EXPECT_THAT(ParamFolder::Open(folder),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("written by one of 2 ranks; the folder has "
                                 "the files of 1")));
  WriteRank(folder, 1, {{"w@1", {2}}});
  EXPECT_OK(ParamFolder::Open(folder));
}

TEST(ParamsDiffTest, AnArtifactsFolderLeadsToItsParameters) {
  const std::string artifacts = NewFolder();
  const std::string folder = artifacts + "/parameters";
  std::filesystem::create_directory(folder);
  WriteRank(folder, 0, {{"w@0", {1, 2}}});
  ASSERT_OK_AND_ASSIGN(const ParamFolder a, ParamFolder::Open(artifacts));
  ASSERT_OK_AND_ASSIGN(const ParamFolder b, ParamFolder::Open(folder));
  EXPECT_TRUE(CompareParams(a, b).identical());
}

}  // namespace
}  // namespace weft::client
