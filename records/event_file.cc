#include "records/event_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace weft::records {
namespace {

using ::google::protobuf::io::CodedOutputStream;
using ::google::protobuf::io::StringOutputStream;

// Kinds of fields in protobuf's encoding.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

uint32_t Key(int field, WireType type) { return field << 3 | type; }

template <typename To, typename From>
To Bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

void WriteBytes(int field, const std::string& bytes, CodedOutputStream& out) {
  out.WriteTag(Key(field, kBytes));
  out.WriteVarint32(bytes.size());
  out.WriteString(bytes);
}

std::string EncodeValue(const Scalar& scalar) {
  std::string bytes;
  StringOutputStream stream(&bytes);
  CodedOutputStream out(&stream);
  WriteBytes(1, scalar.tag, out);
  out.WriteTag(Key(2, kFixed32));
  out.WriteLittleEndian32(Bits<uint32_t>(scalar.value));
  out.Trim();
  return bytes;
}

std::string EncodeSummary(absl::Span<const Scalar> scalars) {
  std::string bytes;
  StringOutputStream stream(&bytes);
  CodedOutputStream out(&stream);
  for (const Scalar& scalar : scalars) WriteBytes(1, EncodeValue(scalar), out);
  out.Trim();
  return bytes;
}

// An event with `bytes` as its field `what`.
std::string EncodeEvent(absl::Time time, int64_t step, int what,
                        const std::string& bytes) {
  std::string event;
  StringOutputStream stream(&event);
  CodedOutputStream out(&stream);
  out.WriteTag(Key(1, kFixed64));
  out.WriteLittleEndian64(
      Bits<uint64_t>(absl::ToDoubleSeconds(time - absl::UnixEpoch())));
  out.WriteTag(Key(2, kVarint));
  out.WriteVarint64(step);
  WriteBytes(what, bytes, out);
  out.Trim();
  return event;
}

uint32_t MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// A crash may leave part of a record at the end; readers stop before it.
std::string Frame(const std::string& event) {
  std::string record;
  StringOutputStream stream(&record);
  CodedOutputStream out(&stream);
  out.WriteLittleEndian64(event.size());
  out.Trim();
  const uint32_t crc_of_size = MaskedCrc(record);
  out.WriteLittleEndian32(crc_of_size);
  out.WriteString(event);
  out.WriteLittleEndian32(MaskedCrc(event));
  out.Trim();
  return record;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(
    absl::string_view folder, absl::string_view host, absl::Time now,
    int number) {
  const std::string path =
      absl::StrCat(folder, "/events.out.tfevents.", absl::ToUnixSeconds(now),
                   ".", host, ".", getpid(), ".", number);
  FILE* file = std::fopen(path.c_str(), "wxe");
  if (file == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot write event file ", path, ": ", std::strerror(errno)));
  }
  auto events = absl::WrapUnique(new EventFile(path, file));
  const absl::Status status =
      events->WriteRecord(EncodeEvent(now, /*step=*/0, 3, "brain.Event:2"));
  if (status.ok()) return events;
  // No reader could use it, and the next try makes another.
  std::remove(path.c_str());
  return status;
}

EventFile::~EventFile() { std::fclose(file_); }

absl::Status EventFile::Write(int64_t step, absl::Time time,
                              absl::Span<const Scalar> scalars) {
  return WriteRecord(EncodeEvent(time, step, 5, EncodeSummary(scalars)));
}

absl::Status EventFile::WriteRecord(const std::string& event) {
  const std::string record = Frame(event);
  if (std::fwrite(record.data(), 1, record.size(), file_) == record.size() &&
      std::fflush(file_) == 0) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("cannot write event file ", path_,
                                          ": ", std::strerror(errno)));
}

}  // namespace weft::records
