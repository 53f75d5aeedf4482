#include "client/job_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/utf8.h"

namespace weft::client {
namespace {

// No job comes near this; a mistaken path may.
constexpr size_t kMaxJobBytes = 1 << 20;

absl::StatusOr<std::string> ReadAll(int fd, absl::string_view name,
                                    size_t max_bytes) {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("reading ", name));
    }
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has more than ", max_bytes, " bytes"));
    }
  }
}

void AppendTo(std::vector<FieldError>& errors,
              const std::vector<FieldError>& more) {
  errors.insert(errors.end(), more.begin(), more.end());
}

// Makes a path whole: workers may run in another folder than whoever submits.
void Resolve(const char* field, std::string* path, JobFile* file) {
  const std::filesystem::path relative = *path;
  std::error_code error;
  const auto here = std::filesystem::current_path(error);
  if (error || relative.empty() || relative.is_absolute()) return;
  const std::string whole = (here / relative).lexically_normal().string();
  if (IsUtf8(whole)) {
    *path = whole;
  } else {
    file->errors.push_back({file->origins.Find(field), field,
                            "the current folder's name is not UTF-8"});
  }
}

void ResolvePaths(JobFile* file) {
  if (file->job.has_data()) {
    v1::DataConfig& data = *file->job.mutable_data();
    Resolve("data.prefix", data.mutable_prefix(), file);
    Resolve("data.loss_mask_prefix", data.mutable_loss_mask_prefix(), file);
    Resolve("data.padding_mask_prefix", data.mutable_padding_mask_prefix(),
            file);
  }
  if (file->job.has_init()) {
    v1::InitConfig& init = *file->job.mutable_init();
    Resolve("init.hugging_face", init.mutable_hugging_face(), file);
    Resolve("init.megatron", init.mutable_megatron(), file);
  }
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path,
                                     size_t max_bytes) {
  if (path == "-") return ReadAll(STDIN_FILENO, "standard input", max_bytes);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  auto text = ReadAll(fd, path, max_bytes);
  close(fd);
  return text;
}

absl::StatusOr<JobFile> ReadJobFile(const std::string& path,
                                    const std::vector<std::string>& sets) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxJobBytes));
  JobFile file;
  file.errors =
      ParseYaml(text, path == "-" ? "<stdin>" : path, &file.job, &file.origins);
  for (const std::string& assignment : sets) {
    AppendTo(file.errors, SetField(assignment, &file.job, &file.origins));
  }
  if (file.errors.empty()) ResolvePaths(&file);
  return file;
}

}  // namespace weft::client
