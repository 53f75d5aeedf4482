#include "checkpoint/format/safetensors_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file/atomic_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_header.h"

namespace weft::checkpoint {
namespace {

// `value` as 8 bytes, lowest first.
std::string LittleEndian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return bytes;
}

}  // namespace

absl::Status SafetensorsWriter::Add(absl::string_view name,
                                    SafetensorsType type,
                                    absl::Span<const int64_t> shape,
                                    const void* data) {
  if (name == kSafetensorsMetadataKey) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", name, "\": the name is reserved"));
  }
  RETURN_IF_ERROR(Annotate(JsonString(name).status(), "tensor name"));
  ASSIGN_OR_RETURN(const int64_t bytes, SafetensorsBytes(type, shape),
                   _ << "tensor \"" << name << "\"");
  if (!names_.insert(std::string(name)).second) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", name, "\": the name is taken"));
  }
  Tensor tensor;
  tensor.name = std::string(name);
  tensor.type = type;
  tensor.shape.assign(shape.begin(), shape.end());
  tensor.data = static_cast<const char*>(data);
  tensor.bytes = bytes;
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

void SafetensorsWriter::SetMetadata(absl::string_view key,
                                    absl::string_view value) {
  metadata_[std::string(key)] = std::string(value);
}

absl::Status SafetensorsWriter::Write(const std::string& path) const {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors_) order.push_back(&tensor);
  // Large elements first, so that each tensor is aligned when the file is
  // mapped.
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    const int a_bits = BitsOf(a->type);
    const int b_bits = BitsOf(b->type);
    return a_bits != b_bits ? a_bits > b_bits : a->name < b->name;
  });
  SafetensorsHeader header;
  header.metadata = metadata_;
  for (const Tensor* tensor : order) {
    const int64_t begin = header.data_bytes;
    header.data_bytes += tensor->bytes;
    header.entries.push_back(
        {tensor->name, tensor->type, tensor->shape, begin, header.data_bytes});
  }
  ASSIGN_OR_RETURN(const std::string text, SafetensorsHeaderText(header),
                   _ << "writing " << path);
  ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(LittleEndian(text.size())));
  RETURN_IF_ERROR(file->Append(text));
  for (const Tensor* tensor : order) {
    RETURN_IF_ERROR(file->Append(
        absl::string_view(tensor->data, static_cast<size_t>(tensor->bytes))));
  }
  return file->Commit();
}

}  // namespace weft::checkpoint
