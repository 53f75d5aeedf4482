#include "client/params_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/message_text.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsType;
using checkpoint::SafetensorsView;

double ValueAt(SafetensorsType type, const char* data) {
  if (type == SafetensorsType::kF64) {
    double value;
    std::memcpy(&value, data, sizeof(value));
    return value;
  }
  uint32_t bits = 0;
  if (type == SafetensorsType::kBf16) {
    uint16_t half;
    std::memcpy(&half, data, sizeof(half));
    bits = uint32_t{half} << 16;
  } else {
    std::memcpy(&bits, data, sizeof(bits));
  }
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

double RelativeError(double a, double b) {
  if (a == b) return 0;  // also -0 and 0
  const double error = std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

void AddDifference(const std::string& name, const std::string& what,
                   ParamsDiff* diff) {
  if (diff->first.empty()) diff->first = absl::StrCat(name, ": ", what);
}

// Compares `n` elements that begin at element `begin` of both.
void CompareRange(const std::string& name, SafetensorsType type, int64_t begin,
                  int64_t n, const char* a, const char* b, ParamsDiff* diff) {
  const int64_t width = BitsOf(type) / 8;
  if (std::memcmp(a, b, static_cast<size_t>(n * width)) == 0) return;
  for (int64_t i = 0; i < n; ++i, a += width, b += width) {
    if (std::memcmp(a, b, static_cast<size_t>(width)) == 0) continue;
    ++diff->differing_elements;
    const double x = ValueAt(type, a);
    const double y = ValueAt(type, b);
    AddDifference(name,
                  absl::StrCat("element ", begin + i, " is ", ShortestDouble(x),
                               " and ", ShortestDouble(y)),
                  diff);
    const double error = RelativeError(x, y);
    if (error > diff->max_relative_error) {
      diff->max_relative_error = error;
      diff->max_at = absl::StrCat(name, " element ", begin + i);
    }
  }
}

// Walks the fragments of both sides, cut where either is cut.
void CompareParam(const std::string& name, const Param& a, const Param& b,
                  ParamsDiff* diff) {
  const int64_t width = BitsOf(a.type) / 8;
  size_t i = 0;
  size_t j = 0;
  for (int64_t at = 0; at < a.elements;) {
    const ParamFragment& x = a.fragments[i];
    const ParamFragment& y = b.fragments[j];
    const int64_t end = std::min(x.begin + x.elements, y.begin + y.elements);
    CompareRange(name, a.type, at, end - at, x.data + (at - x.begin) * width,
                 y.data + (at - y.begin) * width, diff);
    at = end;
    if (x.begin + x.elements == end) ++i;
    if (y.begin + y.elements == end) ++j;
  }
}

void CompareSides(const std::string& name, const Param* a, const Param* b,
                  ParamsDiff* diff) {
  if (a == nullptr || b == nullptr) {
    ++(a == nullptr ? diff->only_in_b : diff->only_in_a);
    AddDifference(name, a == nullptr ? "only in B" : "only in A", diff);
    return;
  }
  if (a->type != b->type || a->elements != b->elements) {
    ++diff->other_shapes;
    AddDifference(name,
                  absl::StrCat(a->elements, " ", Name(a->type), " and ",
                               b->elements, " ", Name(b->type)),
                  diff);
    return;
  }
  ++diff->params;
  diff->elements += a->elements;
  const int64_t before = diff->differing_elements;
  CompareParam(name, *a, *b, diff);
  diff->differing_params += diff->differing_elements > before;
}

const Param* FindParam(const ParamFolder& folder, const std::string& name) {
  const auto it = folder.params().find(name);
  return it == folder.params().end() ? nullptr : &it->second;
}

constexpr char kPrefix[] = "rank-";
constexpr char kSuffix[] = ".safetensors";

// Where a job's parameters are: in the folder, or in that of its artifacts.
std::string ParametersIn(const std::string& folder) {
  const auto inner = std::filesystem::path(folder) / "parameters";
  std::error_code error;
  return std::filesystem::is_directory(inner, error) ? inner.string() : folder;
}

// Every rank from 0 on must have its file. Requires: `names` are sorted.
absl::Status CheckRanks(const std::string& folder,
                        const std::vector<std::string>& names) {
  for (size_t rank = 0; rank < names.size(); ++rank) {
    const std::string expected =
        absl::StrFormat("%s%05d%s", kPrefix, rank, kSuffix);
    if (names[rank] != expected) {
      return absl::DataLossError(absl::StrCat(
          folder, ": there is ", names[rank], " but no ", expected));
    }
  }
  return absl::OkStatus();
}

// The files of a folder, by rank.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kSuffix)) {
      names.push_back(name);
    }
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("reading folder ", folder));
  }
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, " has no rank-*.safetensors; a job writes them ",
                     "with output.final_parameters"));
  }
  std::sort(names.begin(), names.end());
  RETURN_IF_ERROR(CheckRanks(folder, names));
  return names;
}

// A file that knows how many ranks its job had must have that many beside it.
absl::Status CheckWorld(const checkpoint::SafetensorsFile& file, size_t files) {
  const auto world = file.metadata().find("world");
  if (world == file.metadata().end() || world->second == absl::StrCat(files)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(file.path(), ": written by one of ", world->second,
                   " ranks; the folder has the files of ", files));
}

}  // namespace

absl::StatusOr<ParamFolder> ParamFolder::Open(const std::string& folder) {
  const std::string inner = ParametersIn(folder);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(inner));
  ParamFolder result;
  for (const std::string& name : names) {
    RETURN_IF_ERROR(result.AddFile(absl::StrCat(inner, "/", name)));
    RETURN_IF_ERROR(CheckWorld(result.files_.back(), names.size()));
  }
  RETURN_IF_ERROR(result.CheckCover(inner));
  if (result.params_.empty()) {
    return absl::DataLossError(
        absl::StrCat(inner, ": the files hold no parameters"));
  }
  return result;
}

absl::Status ParamFolder::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, checkpoint::SafetensorsFile::Open(path));
  for (const SafetensorsView& tensor : file.tensors()) {
    const size_t at = tensor.name.rfind('@');
    ParamFragment fragment;
    if (at == std::string::npos ||
        !absl::SimpleAtoi(tensor.name.substr(at + 1), &fragment.begin) ||
        fragment.begin < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor \"", tensor.name, "\" is not named param@begin"));
    }
    if (tensor.type != SafetensorsType::kF32 &&
        tensor.type != SafetensorsType::kF64 &&
        tensor.type != SafetensorsType::kBf16) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", tensor.name, "\" is ",
                       Name(tensor.type), "; only floats are compared"));
    }
    const auto [it, is_new] = params_.try_emplace(tensor.name.substr(0, at));
    if (is_new) it->second.type = tensor.type;
    if (it->second.type != tensor.type) {
      return absl::DataLossError(absl::StrCat(
          path, ": tensor \"", tensor.name, "\" is ", Name(tensor.type),
          "; another fragment is ", Name(it->second.type)));
    }
    fragment.elements = tensor.elements();
    fragment.data = tensor.bytes.data();
    if (fragment.elements > 0) it->second.fragments.push_back(fragment);
  }
  files_.push_back(std::move(file));  // the bytes stay where they are
  return absl::OkStatus();
}

absl::Status ParamFolder::CheckCover(const std::string& folder) {
  for (auto& [name, param] : params_) {
    std::sort(param.fragments.begin(), param.fragments.end(),
              [](const ParamFragment& a, const ParamFragment& b) {
                return a.begin < b.begin;
              });
    for (const ParamFragment& fragment : param.fragments) {
      if (fragment.begin != param.elements) {
        return absl::DataLossError(absl::StrCat(
            folder, ": ", name, ": a fragment begins at ", fragment.begin,
            fragment.begin < param.elements ? ", inside the one before it"
                                            : ", leaving a hole",
            ", which ends at ", param.elements));
      }
      param.elements += fragment.elements;
    }
  }
  return absl::OkStatus();
}

ParamsDiff CompareParams(const ParamFolder& a, const ParamFolder& b) {
  std::set<std::string> names;
  for (const auto& [name, param] : a.params()) names.insert(name);
  for (const auto& [name, param] : b.params()) names.insert(name);
  ParamsDiff diff;
  for (const std::string& name : names) {
    CompareSides(name, FindParam(a, name), FindParam(b, name), &diff);
  }
  return diff;
}

}  // namespace weft::client
