// What clusters read and write outside of themselves.
#ifndef WEFT_TESTS_CLUSTER_FILES_H_
#define WEFT_TESTS_CLUSTER_FILES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "monitoring/http_get.h"

namespace weft::testing {

// The folder that is the test's own.
std::string TestFolder();

// Empty when there is no such file.
std::string ReadFile(const std::string& path);

// The bytes of every file in `folder`, by name.
std::map<std::string, std::string> ReadFolder(const std::string& folder);

using monitoring::HttpGet;

// Writes a dataset of `tokens` random tokens below `vocab` (all the same token
// when `constant`) and returns its prefix.
absl::StatusOr<std::string> WriteDataset(const std::string& name, int tokens,
                                         int vocab, bool constant);

}  // namespace weft::testing

#endif  // WEFT_TESTS_CLUSTER_FILES_H_
