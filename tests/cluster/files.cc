#include "tests/cluster/files.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "data/format/indexed_dataset_writer.h"

namespace weft::testing {

std::string TestFolder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : "/tmp";
}

std::string ReadFile(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

std::map<std::string, std::string> ReadFolder(const std::string& folder) {
  std::map<std::string, std::string> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    files[entry.path().filename()] = ReadFile(entry.path());
  }
  return files;
}

absl::StatusOr<std::string> WriteDataset(const std::string& name, int tokens,
                                         int vocab, bool constant) {
  const std::string prefix = absl::StrCat(TestFolder(), "/", name);
  ASSIGN_OR_RETURN(auto writer,
                   data::IndexedDatasetWriter::Create(prefix, vocab));
  std::mt19937 random(20261130);
  std::vector<int32_t> sequence(tokens);
  for (int32_t& token : sequence) token = constant ? 5 : random() % vocab;
  RETURN_IF_ERROR(writer->AddSequence(sequence));
  RETURN_IF_ERROR(writer->Finish());
  return prefix;
}

}  // namespace weft::testing
