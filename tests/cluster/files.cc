#include "tests/cluster/files.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
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

std::string HttpGet(const std::string& address, const std::string& path) {
  int port = 0;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return "";
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: test\r\n\r\n");
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0 &&
      write(fd, request.data(), request.size()) > 0) {
    char buffer[4096];
    ssize_t n;
    while ((n = read(fd, buffer, sizeof(buffer))) > 0) answer.append(buffer, n);
  }
  close(fd);
  return answer;
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
