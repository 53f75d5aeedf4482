#include "checkpoint/format/safetensors_file.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;

// The header's text of a file of `bytes`.
absl::StatusOr<absl::string_view> HeaderText(absl::string_view bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat("the file has ", bytes.size(),
                     " bytes; the header's length alone takes 8"));
  }
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  }
  if (length > kMaxSafetensorsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("header length ", length,
                                            " is above the limit of ",
                                            kMaxSafetensorsHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat("header length ", length,
                                            " leads beyond the file of ",
                                            bytes.size(), " bytes"));
  }
  return bytes.substr(kLengthBytes, length);
}

}  // namespace

int64_t SafetensorsView::elements() const {
  return static_cast<int64_t>(bytes.size()) * 8 / BitsOf(type);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(file.bytes()),
                   _ << path);
  ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(text),
                   _ << path);
  const absl::string_view data =
      file.bytes().substr(kLengthBytes + text.size());
  if (static_cast<int64_t>(data.size()) != header.data_bytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": the file has ", data.size(), " bytes behind the header, ",
        "whose tensors take ", header.data_bytes));
  }
  return SafetensorsFile(std::move(file), std::move(header), data);
}

SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsHeader header,
                                 absl::string_view data)
    : file_(std::move(file)), metadata_(std::move(header.metadata)) {
  for (SafetensorsEntry& entry : header.entries) {
    tensors_.push_back(
        {std::move(entry.name), entry.type, std::move(entry.shape),
         data.substr(static_cast<size_t>(entry.begin),
                     static_cast<size_t>(entry.end - entry.begin))});
  }
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const SafetensorsView& tensor : tensors_) names.push_back(tensor.name);
  return names;
}

const SafetensorsView* SafetensorsFile::Find(absl::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace weft::checkpoint
