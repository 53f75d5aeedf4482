// Writes a safetensors file.
#ifndef WEFT_CHECKPOINT_FORMAT_SAFETENSORS_WRITER_H_
#define WEFT_CHECKPOINT_FORMAT_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "checkpoint/format/safetensors_type.h"

namespace weft::checkpoint {

// Collects tensors, then writes them in one go.
//
//   SafetensorsWriter writer;
//   RETURN_IF_ERROR(writer.Add("weight", DType::kF32, {rows, columns}, data));
//   return writer.Write("model.safetensors");
//
// Requires: the data of every tensor stays as it is until Write() returns; it
// is not copied.
// Guarantees: the file appears under its name complete or not at all. The same
// tensors make the same bytes, in whatever order they were added.
// Thread-compatible.
class SafetensorsWriter {
 public:
  // INVALID_ARGUMENT, naming the tensor: a name that is taken, reserved or not
  // UTF-8, a negative dimension, a size beyond 2^63 bytes, or one that is not
  // whole bytes. A shape without dimensions is one element; a dimension of 0
  // is an empty tensor, whose `data` may be null.
  absl::Status Add(absl::string_view name, SafetensorsType type,
                   absl::Span<const int64_t> shape, const void* data);
  absl::Status Add(absl::string_view name, DType dtype,
                   absl::Span<const int64_t> shape, const void* data) {
    return Add(name, ToSafetensorsType(dtype), shape, data);
  }

  // A word about the file, e.g. ("format", "pt"). The last value of a key
  // counts.
  void SetMetadata(absl::string_view key, absl::string_view value);

  // INVALID_ARGUMENT when the header would be larger than readers take, or the
  // metadata is not UTF-8; else what the file system says.
  absl::Status Write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    SafetensorsType type = SafetensorsType::kU8;
    std::vector<int64_t> shape;
    const char* data = nullptr;
    int64_t bytes = 0;
  };

  std::vector<Tensor> tensors_;
  absl::flat_hash_set<std::string> names_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_SAFETENSORS_WRITER_H_
