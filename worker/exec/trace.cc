#include "worker/exec/trace.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file/atomic_file.h"
#include "base/status_macros.h"

namespace weft::exec {
namespace {

// Names of ops and streams: letters, digits and punctuation only.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  out.push_back('"');
  return out;
}

void AppendMetadata(std::string& json, int rank, absl::string_view what,
                    int row, absl::string_view name) {
  absl::StrAppend(&json, "{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", rank,
                  ",\"tid\":", row, ",\"args\":{\"name\":", Quoted(name),
                  "}},\n");
}

}  // namespace

std::string TraceJson(int rank, const std::vector<TraceRow>& rows,
                      const std::vector<TraceEvent>& events) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const TraceRow& row : rows) {
    AppendMetadata(json, rank, "thread_name", row.row, row.name);
  }
  for (const TraceEvent& event : events) {
    absl::StrAppend(
        &json, "{\"ph\":\"X\",\"name\":", Quoted(event.name), ",\"pid\":", rank,
        ",\"tid\":", event.row,
        absl::StrFormat(",\"ts\":%.3f,\"dur\":%.3f},\n", event.begin_ns / 1e3,
                        (event.end_ns - event.begin_ns) / 1e3));
  }
  // Last, so that no event ends in a comma.
  absl::StrAppend(&json,
                  "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", rank,
                  ",\"args\":{\"name\":\"rank ", rank, "\"}}\n]}\n");
  return json;
}

absl::Status WriteTextFile(const std::string& path, absl::string_view text) {
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(text));
  return file->Commit();
}

}  // namespace weft::exec
