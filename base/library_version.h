// Versions of libraries: what is in use, and the least that will do.
#ifndef WEFT_BASE_LIBRARY_VERSION_H_
#define WEFT_BASE_LIBRARY_VERSION_H_

#include <cstdint>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace weft {

struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;

  friend bool operator<(const Version& a, const Version& b) {
    return std::tie(a.major, a.minor, a.patch) <
           std::tie(b.major, b.minor, b.patch);
  }
};

// "2.28.3".
std::string ToString(const Version& version);

// The version that a library writes as one number, in which each unit of major
// and minor counts so much: 22803 of NCCL is 2.28.3 with 10000 and 100.
Version VersionOf(int64_t number, int64_t major_unit, int64_t minor_unit);

struct LibraryVersion {
  std::string name;
  Version version;
  Version least;  // that is supported
};

// FAILED_PRECONDITION, naming every library that is older than the least
// version, with both versions.
absl::Status CheckLibraries(absl::Span<const LibraryVersion> libraries);

// "UCX=1.13.1 oneDNN=2.6.0", for a log.
std::string DescribeLibraries(absl::Span<const LibraryVersion> libraries);

}  // namespace weft

#endif  // WEFT_BASE_LIBRARY_VERSION_H_
