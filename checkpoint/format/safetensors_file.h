// Reads a safetensors file.
#ifndef WEFT_CHECKPOINT_FORMAT_SAFETENSORS_FILE_H_
#define WEFT_CHECKPOINT_FORMAT_SAFETENSORS_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file/mapped_file.h"
#include "checkpoint/format/safetensors_header.h"
#include "checkpoint/format/safetensors_type.h"

namespace weft::checkpoint {

// A tensor inside an open file.
struct SafetensorsView {
  std::string name;
  SafetensorsType type = SafetensorsType::kU8;
  std::vector<int64_t> shape;
  // Row-major, little-endian. Not aligned in general: read by memcpy.
  absl::string_view bytes;

  int64_t elements() const;
};

// An open file.
//
//   ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(path));
//   const SafetensorsView* weight = file.Find("weight");
//
// Guarantees: every rule of the format holds for the file, so that no view
// leads outside it. Views live as long as the file, also when it moves.
// Thread-compatible; const methods are thread-safe.
class SafetensorsFile {
 public:
  // DATA_LOSS, naming file, tensor, value and rule, when the file breaks a
  // rule; else what the file system says.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In order of their bytes.
  const std::vector<SafetensorsView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  std::vector<std::string> names() const;

  // Null when there is none of that name.
  const SafetensorsView* Find(absl::string_view name) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header,
                  absl::string_view data);

  MappedFile file_;
  std::vector<SafetensorsView> tensors_;
  // Indices of `tensors_`; the keys are their names.
  absl::flat_hash_map<absl::string_view, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_SAFETENSORS_FILE_H_
