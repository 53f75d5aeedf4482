// A file's bytes in a string.
#ifndef WEFT_BASE_FILE_READ_FILE_H_
#define WEFT_BASE_FILE_READ_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// Reads a whole file, which may be one that somebody else writes, cuts or
// replaces meanwhile: unlike MappedFile it then returns what it read.
//
// INVALID_ARGUMENT when `path` is not a regular file, such as a folder or a
// pipe, whose writer it does not wait for, or has more than `max_bytes`; else
// NOT_FOUND, PERMISSION_DENIED and so on, as the system says. All name the
// path.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t max_bytes);

}  // namespace weft

#endif  // WEFT_BASE_FILE_READ_FILE_H_
