#include "client/prepare.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "client/held_interrupts.h"
#include "data/format/byte_tokenizer.h"
#include "data/format/entropy.h"
#include "data/format/indexed_dataset_writer.h"

namespace weft::client {
namespace {

// Tokens of a sequence of the dataset. Samples do not depend on it; it bounds
// memory.
constexpr size_t kPieceBytes = 1 << 20;

// Fills `buffer` as far as the input goes. Returns the bytes read.
absl::StatusOr<size_t> ReadPiece(int fd, const std::string& name,
                                 const HeldInterrupts& interrupts,
                                 std::vector<char>* buffer) {
  size_t size = 0;
  while (size < buffer->size()) {
    RETURN_IF_ERROR(interrupts.AwaitInput(fd));
    const ssize_t n = read(fd, buffer->data() + size, buffer->size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("reading ", name));
    }
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  return size;
}

absl::Status CheckPrefix(const std::string& prefix) {
  const std::string name = std::filesystem::path(prefix).filename().string();
  if (!name.empty() && name != "." && name != "..") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the prefix \"", prefix, "\" names no file; add a name to ",
                   "it, as in folder/text"));
}

// The dataset takes the place of its files when it is complete.
absl::Status CheckNotInput(int fd, const std::string& input,
                           const std::string& prefix) {
  struct stat from;
  if (fstat(fd, &from) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("reading ", input));
  }
  for (const char* extension : {".bin", ".idx"}) {
    const std::string path = prefix + extension;
    struct stat to;
    if (stat(path.c_str(), &to) != 0) continue;
    if (from.st_dev != to.st_dev || from.st_ino != to.st_ino) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the dataset's ", path, " would overwrite the text, ",
                     input, "; choose another prefix"));
  }
  return absl::OkStatus();
}

// Only the last folder: a path with a slip in it is refused.
absl::Status MakeFolderOf(const std::string& prefix) {
  const std::filesystem::path folder =
      std::filesystem::path(prefix).parent_path();
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("making folder ", folder.string()));
}

}  // namespace

absl::StatusOr<PreparedText> PrepareBytes(const std::string& input,
                                          const std::string& prefix) {
  RETURN_IF_ERROR(CheckPrefix(prefix));
  const bool is_stdin = input == "-";
  const int fd =
      is_stdin ? STDIN_FILENO : open(input.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("opening ", input));
  }
  const auto closer = absl::MakeCleanup([&] {
    if (!is_stdin) close(fd);
  });
  RETURN_IF_ERROR(CheckNotInput(fd, input, prefix));
  RETURN_IF_ERROR(MakeFolderOf(prefix));
  const HeldInterrupts interrupts;  // outlives the files that are not complete
  ASSIGN_OR_RETURN(auto writer, data::IndexedDatasetWriter::Create(
                                    prefix, data::kByteVocabulary));
  data::TextEntropy entropy;
  std::vector<char> buffer(kPieceBytes);
  while (true) {
    ASSIGN_OR_RETURN(const size_t size,
                     ReadPiece(fd, input, interrupts, &buffer));
    if (size == 0) break;
    const absl::string_view piece(buffer.data(), size);
    entropy.Add(piece);
    RETURN_IF_ERROR(writer->AddSequence(data::EncodeBytes(piece)));
  }
  if (entropy.bytes() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(input, " is empty"));
  }
  RETURN_IF_ERROR(writer->Finish());
  PreparedText prepared;
  prepared.tokens = entropy.bytes();
  prepared.distinct_tokens = entropy.distinct_bytes();
  prepared.vocab_size = data::kByteVocabulary;
  prepared.unigram_entropy = entropy.Unigram();
  prepared.bigram_entropy = entropy.BigramConditional();
  return prepared;
}

}  // namespace weft::client
