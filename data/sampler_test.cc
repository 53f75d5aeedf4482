#include "data/sampler.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "data/format/indexed_dataset_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/v1/job.pb.h"

namespace weft::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 30000;

class SamplerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/sampler.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    prefix_ = pattern + "/text";
  }

  // Token t of the dataset is t, in sequences that fit no window.
  void WriteCounting(int32_t tokens, int32_t sequence_tokens = 7) {
    Write(prefix_, tokens, sequence_tokens,
          [](int32_t token) { return token; });
  }

  // Token t is value(t).
  template <typename Value>
  void Write(const std::string& prefix, int32_t tokens, int32_t sequence_tokens,
             Value value) {
    ASSERT_OK_AND_ASSIGN(auto writer,
                         IndexedDatasetWriter::Create(prefix, kVocabulary));
    for (int32_t begin = 0; begin < tokens; begin += sequence_tokens) {
      std::vector<int32_t> sequence(std::min(sequence_tokens, tokens - begin));
      for (int32_t i = 0; i < sequence.size(); ++i) {
        sequence[i] = value(begin + i);
      }
      ASSERT_OK(writer->AddSequence(sequence));
      writer->EndDocument();
    }
    ASSERT_OK(writer->Finish());
  }

  Sampler::Options OptionsOf(int64_t length, double fraction, uint64_t seed) {
    Sampler::Options options;
    options.prefix = prefix_;
    options.sequence_length = length;
    options.validation_fraction = fraction;
    options.seed = seed;
    options.vocab_size = kVocabulary;
    return options;
  }

  std::unique_ptr<Sampler> Create(const Sampler::Options& options) {
    auto sampler = Sampler::Create(options);
    EXPECT_OK(sampler);
    return *std::move(sampler);
  }
  std::unique_ptr<Sampler> Create(int64_t length, double fraction,
                                  uint64_t seed) {
    return Create(OptionsOf(length, fraction, seed));
  }

  std::string prefix_;
};

std::vector<int32_t> Read(Sampler& sampler, Split split, int64_t index,
                          int64_t length) {
  std::vector<int32_t> tokens(length + 1);
  EXPECT_OK(sampler.Read(split, index, absl::MakeSpan(tokens)));
  return tokens;
}

TEST_F(SamplerTest, ValidationIsTheEndOfTheTextInItsOrder) {
  WriteCounting(104);  // 10 samples of 10, and 3 tokens nobody predicts
  auto sampler = Create(10, 0.2, 1);
  EXPECT_EQ(sampler->size(Split::kTrain), 8);
  EXPECT_EQ(sampler->size(Split::kValidation), 2);
  EXPECT_THAT(Read(*sampler, Split::kValidation, 0, 10),
              ElementsAre(80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90));
  EXPECT_THAT(Read(*sampler, Split::kValidation, 1, 10),
              ElementsAre(90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100));
}

TEST_F(SamplerTest, EveryEpochPredictsEveryTrainTokenOnceAndNoHeldOutOne) {
  constexpr int64_t kLength = 9;
  WriteCounting(1000);  // 111 samples
  auto sampler = Create(kLength, 0.1, 42);
  ASSERT_EQ(sampler->size(Split::kTrain), 100);
  std::multiset<int32_t> held_out;
  for (int64_t i = 0; i < sampler->size(Split::kValidation); ++i) {
    const auto tokens = Read(*sampler, Split::kValidation, i, kLength);
    held_out.insert(tokens.begin() + 1, tokens.end());
  }
  std::vector<std::vector<int32_t>> firsts(3);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::multiset<int32_t> predicted;
    for (int64_t i = 0; i < 100; ++i) {
      const auto tokens =
          Read(*sampler, Split::kTrain, epoch * 100 + i, kLength);
      predicted.insert(tokens.begin() + 1, tokens.end());
      firsts[epoch].push_back(tokens[0]);
    }
    EXPECT_EQ(predicted.size(), 900);
    for (int32_t token = 1; token <= 900; ++token) {
      ASSERT_EQ(predicted.count(token), 1) << token;
      ASSERT_EQ(held_out.count(token), 0) << token;
    }
  }
  EXPECT_NE(firsts[0], firsts[1]);
  EXPECT_NE(firsts[1], firsts[2]);
}

TEST_F(SamplerTest, TheOrderDependsOnSeedAndIndexAlone) {
  WriteCounting(2001);
  auto forward = Create(10, 0.1, 5);
  auto backward = Create(10, 0.1, 5);
  auto other = Create(10, 0.1, 6);
  std::vector<std::vector<int32_t>> expected;
  for (int64_t i = 0; i < 500; ++i) {
    expected.push_back(Read(*forward, Split::kTrain, i, 10));
  }
  int same_as_other = 0;
  for (int64_t i = 499; i >= 0; --i) {
    EXPECT_EQ(Read(*backward, Split::kTrain, i, 10), expected[i]) << i;
    same_as_other += Read(*other, Split::kTrain, i, 10) == expected[i];
  }
  EXPECT_LT(same_as_other, 25);  // 3 expected
}

TEST_F(SamplerTest, WhatIsNotThereIsRefused) {
  WriteCounting(101);
  auto sampler = Create(10, 0.2, 1);
  std::vector<int32_t> tokens(11);
  EXPECT_THAT(sampler->Read(Split::kValidation, 2, absl::MakeSpan(tokens)),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("validation sample 2 of 2")));
  EXPECT_THAT(sampler->Read(Split::kTrain, -1, absl::MakeSpan(tokens)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  tokens.resize(10);
  EXPECT_THAT(sampler->Read(Split::kTrain, 0, absl::MakeSpan(tokens)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("into 10 tokens")));
}

TEST_F(SamplerTest, OptionsOutOfRangeAreRefused) {
  WriteCounting(101);
  EXPECT_THAT(Sampler::Create(OptionsOf(101, 0, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 101 tokens, which make 0 samples")));
  Sampler::Options options = OptionsOf(10, 0, 1);
  options.prefix += "x";
  EXPECT_THAT(Sampler::Create(options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("textx.idx")));
  options = OptionsOf(10, 0, 1);
  options.vocab_size = 0;
  EXPECT_THAT(Sampler::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument));
  options = OptionsOf(10, 0, 1);
  options.kind = static_cast<v1::SampleKind>(7);
  EXPECT_THAT(Sampler::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sample_kind=7 is not a known value")));
  options = OptionsOf(10, 0, 1);
  options.order = static_cast<v1::SampleOrder>(7);
  EXPECT_THAT(Sampler::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sample_order=7 is not a known value")));
}

TEST_F(SamplerTest, ATokenOutsideTheVocabularyIsNamedWithItsSample) {
  WriteCounting(101);
  Sampler::Options options = OptionsOf(10, 0.1, 1);
  options.vocab_size = 95;
  auto sampler = Create(options);
  std::vector<int32_t> tokens(11);
  EXPECT_OK(sampler->Read(Split::kTrain, 0, absl::MakeSpan(tokens)));
  EXPECT_THAT(
      sampler->Read(Split::kValidation, 0, absl::MakeSpan(tokens)),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("text.bin: token 95, in sample 9 (sequence 13, "
                         "position 4), is 95; the vocabulary is [0, "
                         "95)")));
}

// As Read(), of the mask.
std::vector<int32_t> ReadMask(Sampler& sampler, Split split, int64_t index,
                              int64_t length) {
  std::vector<int32_t> mask(length + 1);
  EXPECT_OK(sampler.ReadMask(split, index, absl::MakeSpan(mask)));
  return mask;
}

TEST_F(SamplerTest, AMaskSaysWhichTokensCount) {
  WriteCounting(104);
  Sampler::Options options = OptionsOf(10, 0.2, 1);
  options.loss_mask_prefix = prefix_ + "_mask";
  Write(options.loss_mask_prefix, 104, 7,
        [](int32_t token) { return token % 3 == 0 ? 1 : 0; });
  auto sampler = Create(options);
  for (Split split : {Split::kTrain, Split::kValidation}) {
    for (int64_t index = 0; index < sampler->size(split); ++index) {
      std::vector<int32_t> expected;
      for (int32_t token : Read(*sampler, split, index, 10)) {
        expected.push_back(token % 3 == 0 ? 1 : 0);
      }
      EXPECT_EQ(ReadMask(*sampler, split, index, 10), expected) << index;
    }
  }
}

TEST_F(SamplerTest, WithoutAMaskEveryTokenCounts) {
  WriteCounting(104);
  auto sampler = Create(3, 0, 1);
  EXPECT_THAT(ReadMask(*sampler, Split::kTrain, 2, 3), ElementsAre(1, 1, 1, 1));
}

TEST_F(SamplerTest, APaddingMaskSaysWhichTokensArePadding) {
  WriteCounting(104);
  Sampler::Options options = OptionsOf(10, 0.2, 1);
  std::vector<int32_t> padding(11, -1);
  ASSERT_OK(
      Create(options)->ReadPadding(Split::kTrain, 3, absl::MakeSpan(padding)));
  EXPECT_EQ(padding, std::vector<int32_t>(11));
  options.padding_mask_prefix = prefix_ + "_padding";
  Write(options.padding_mask_prefix, 104, 7,
        [](int32_t token) { return token == 103 ? 3 : token % 5 == 0; });
  auto sampler = Create(options);
  for (int64_t index = 0; index < sampler->size(Split::kTrain); ++index) {
    std::vector<int32_t> expected;
    for (int32_t token : Read(*sampler, Split::kTrain, index, 10)) {
      expected.push_back(token % 5 == 0);
    }
    ASSERT_OK(
        sampler->ReadPadding(Split::kTrain, index, absl::MakeSpan(padding)));
    EXPECT_EQ(padding, expected) << index;
  }
  options.padding_mask_prefix = prefix_ + "_none";
  EXPECT_THAT(Sampler::Create(options).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("text_none")));
}

TEST_F(SamplerTest, ANumberThatIsNoMaskIsNamedWithFileSequenceAndPosition) {
  WriteCounting(21);
  Sampler::Options options = OptionsOf(20, 0, 1);
  options.loss_mask_prefix = prefix_ + "_mask";
  Write(options.loss_mask_prefix, 21, 7,
        [](int32_t token) { return token == 17 ? 2 : 1; });
  auto sampler = Create(options);
  std::vector<int32_t> mask(21);
  EXPECT_THAT(sampler->ReadMask(Split::kTrain, 0, absl::MakeSpan(mask)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("text_mask.bin: token 17, in sample 0 "
                                 "(sequence 2, position 3), is 2; a loss mask "
                                 "holds 0 and 1")));
}

TEST_F(SamplerTest, AMaskWithOtherSequencesIsRefused) {
  WriteCounting(104);
  Sampler::Options options = OptionsOf(10, 0.2, 1);
  options.loss_mask_prefix = prefix_ + "_mask";
  auto one = [](int32_t token) { return 1; };
  Write(options.loss_mask_prefix, 112, 7, one);
  EXPECT_THAT(
      Sampler::Create(options).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr(absl::StrCat("the mask ", prefix_,
                                      "_mask has 16 sequences, the dataset ",
                                      prefix_, " has 15"))));
  Write(options.loss_mask_prefix, 103, 7, one);
  EXPECT_THAT(Sampler::Create(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sequence 14 of the mask")));
  options.loss_mask_prefix = prefix_ + "_none";
  EXPECT_THAT(Sampler::Create(options).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("text_none")));
}

TEST_F(SamplerTest, WindowsInTheOrderOfTheFileBeginAnewEveryEpoch) {
  WriteCounting(41);  // 4 windows of 10
  Sampler::Options options = OptionsOf(10, 0.25, 1);
  options.order = v1::SAMPLE_ORDER_IN_FILE;
  auto sampler = Create(options);
  ASSERT_EQ(sampler->size(Split::kTrain), 3);
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(Read(*sampler, Split::kTrain, i, 10)[0], i % 3 * 10) << i;
  }
  EXPECT_EQ(Read(*sampler, Split::kValidation, 0, 10)[0], 30);
}

TEST_F(SamplerTest, ASequenceIsASampleAndTheLastOnesValidate) {
  WriteCounting(/*tokens=*/50, /*sequence_tokens=*/5);
  Sampler::Options options = OptionsOf(4, 0.2, 1);
  options.kind = v1::SAMPLE_KIND_SEQUENCE;
  options.order = v1::SAMPLE_ORDER_IN_FILE;
  auto sampler = Create(options);
  EXPECT_EQ(sampler->size(Split::kTrain), 8);
  EXPECT_EQ(sampler->size(Split::kValidation), 2);
  EXPECT_THAT(Read(*sampler, Split::kTrain, 1, 4), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(Read(*sampler, Split::kTrain, 8 + 7, 4),
              ElementsAre(35, 36, 37, 38, 39));
  EXPECT_THAT(Read(*sampler, Split::kValidation, 1, 4),
              ElementsAre(45, 46, 47, 48, 49));
}

TEST_F(SamplerTest, ShuffledSequencesComeOnceAnEpoch) {
  WriteCounting(/*tokens=*/50, /*sequence_tokens=*/5);
  Sampler::Options options = OptionsOf(4, 0, 1);
  options.kind = v1::SAMPLE_KIND_SEQUENCE;
  auto sampler = Create(options);
  std::vector<std::vector<int32_t>> firsts(2);
  for (int64_t i = 0; i < 20; ++i) {
    firsts[i / 10].push_back(Read(*sampler, Split::kTrain, i, 4)[0]);
  }
  EXPECT_NE(firsts[0], firsts[1]);
  for (std::vector<int32_t>& epoch : firsts) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_THAT(epoch, ElementsAre(0, 5, 10, 15, 20, 25, 30, 35, 40, 45));
  }
}

TEST_F(SamplerTest, ASequenceOfAnotherLengthIsRefusedByItsName) {
  WriteCounting(/*tokens=*/52, /*sequence_tokens=*/5);
  Sampler::Options options = OptionsOf(4, 0, 1);
  options.kind = v1::SAMPLE_KIND_SEQUENCE;
  EXPECT_THAT(
      Sampler::Create(options),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("text: sequence 10 of 11 has 2 tokens; each must have "
                         "sequence_length + 1 = 5")));
}

}  // namespace
}  // namespace weft::data
