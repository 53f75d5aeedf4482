// What a test of ParseHfConfig says is refused.
#ifndef WEFT_CHECKPOINT_FORMAT_REFUSED_CONFIG_H_
#define WEFT_CHECKPOINT_FORMAT_REFUSED_CONFIG_H_

#include <string>

#include "base/status_matchers.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/hugging_face_texts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {

struct Refused {
  const char* what;
  const char* text;     // of a configuration
  const char* field;    // that gets
  const char* value;    // this
  const char* message;  // part of the only error
};

inline void ExpectRefused(const Refused& refused) {
  EXPECT_THAT(
      ParseHfConfig(WithField(refused.text, refused.field, refused.value)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               ::testing::AllOf(::testing::HasSubstr(refused.message),
                                ::testing::Not(::testing::HasSubstr(";")))));
}

inline std::string WhatOf(const ::testing::TestParamInfo<Refused>& info) {
  return info.param.what;
}

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_REFUSED_CONFIG_H_
