// Compares the final parameters of two runs, whatever their worlds were.
//
// A run leaves a folder of `rank-*.safetensors`; tensor "<param>@<begin>" holds
// elements [begin, begin + n) of the whole model's flattened parameter. Put
// together, the fragments of all ranks cover every parameter once.
#ifndef WEFT_CLIENT_PARAMS_DIFF_H_
#define WEFT_CLIENT_PARAMS_DIFF_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/format/safetensors_file.h"

namespace weft::client {

// Consecutive elements of a parameter.
struct ParamFragment {
  int64_t begin = 0;
  int64_t elements = 0;
  const char* data = nullptr;  // unaligned
};

// A whole parameter: its fragments lie back to back from 0.
struct Param {
  checkpoint::SafetensorsType type = checkpoint::SafetensorsType::kF32;
  std::vector<ParamFragment> fragments;
  int64_t elements = 0;
};

// The parameters of a folder.
// Guarantees: every parameter is F32, F64 or BF16 and covered once.
class ParamFolder {
 public:
  // `folder` holds the files, or is that of a job's artifacts, with them in
  // `parameters`. NOT_FOUND when there are none; DATA_LOSS when a file is
  // damaged, that of a rank is missing, there are no parameters, or fragments
  // overlap, leave a hole, or differ in type; INVALID_ARGUMENT for types that
  // are not compared.
  //
  // Files may say in their metadata how many ranks there were ("world"); where
  // none does, the last ranks' files may be missing unnoticed.
  static absl::StatusOr<ParamFolder> Open(const std::string& folder);

  const std::map<std::string, Param>& params() const { return params_; }

 private:
  absl::Status AddFile(const std::string& path);
  absl::Status CheckCover(const std::string& folder);

  std::vector<checkpoint::SafetensorsFile> files_;
  std::map<std::string, Param> params_;
};

struct ParamsDiff {
  int64_t params = 0;    // in both
  int64_t elements = 0;  // in both
  int64_t differing_params = 0;
  int64_t differing_elements = 0;
  // The first difference in order of name; empty when there is none. Says which
  // parameter, which element and which values.
  std::string first;
  // Largest |a - b| / max(|a|, |b|) over elements whose bits differ, and where.
  // NaN counts as infinite.
  double max_relative_error = 0;
  std::string max_at;
  // Parameters that are missing on one side, or whose type or size differs.
  int64_t only_in_a = 0;
  int64_t only_in_b = 0;
  int64_t other_shapes = 0;

  bool identical() const { return first.empty(); }
  bool is_structural() const {
    return only_in_a + only_in_b + other_shapes > 0;
  }
};

// Compares bit by bit. -0 and 0 differ.
ParamsDiff CompareParams(const ParamFolder& a, const ParamFolder& b);

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARAMS_DIFF_H_
