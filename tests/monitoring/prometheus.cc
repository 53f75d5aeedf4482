#include "tests/monitoring/prometheus.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "tests/cluster/await.h"
#include "tests/cluster/files.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

constexpr char kProgram[] = "/usr/bin/prometheus";
constexpr char kPromtool[] = "/usr/bin/promtool";

absl::Status CheckInstalled(const std::string& program) {
  if (access(program.c_str(), X_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "there is no ", program, ": install Debian's package prometheus"));
}

std::string Escaped(absl::string_view text) {
  std::string escaped;
  for (unsigned char c : text) {
    if (absl::ascii_isalnum(c)) {
      escaped.push_back(c);
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", c);
    }
  }
  return escaped;
}

// HOST:PORT of the line that says where it listens; empty before there is one.
std::string AddressIn(const std::string& log) {
  const std::string mark = "msg=\"Listening on\" address=";
  const size_t begin = log.find(mark);
  const size_t end = begin == std::string::npos ? begin : log.find('\n', begin);
  if (end == std::string::npos) return "";
  const std::string rest = log.substr(begin + mark.size(), end - begin);
  return rest.substr(0, rest.find_first_of(" \n"));
}

std::pair<double, double> SampleOf(const Json& sample) {
  return {sample[0], std::stod(sample[1].get<std::string>())};
}

Series SeriesOf(const Json& json) {
  Series series;
  for (const auto& [name, value] : json["metric"].items()) {
    if (name != "__name__") series.labels[name] = value;
  }
  if (json.contains("value")) series.samples.push_back(SampleOf(json["value"]));
  for (const Json& sample : json.value("values", Json::array())) {
    series.samples.push_back(SampleOf(sample));
  }
  return series;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Prometheus>> Prometheus::Start(
    const std::vector<std::string>& targets, const std::string& rules) {
  RETURN_IF_ERROR(CheckInstalled(kProgram));
  const std::string folder = TestFolder() + "/prometheus";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/rules.yaml") << rules;
  std::ofstream(folder + "/prometheus.yml")
      << "global: {scrape_interval: 2s, scrape_timeout: 2s,\n"
         "         evaluation_interval: 1s}\n"
         "rule_files: [rules.yaml]\n"
         "scrape_configs:\n"
         "  - job_name: weft\n"
         "    static_configs:\n"
         "      - targets: ['"
      << absl::StrJoin(targets, "', '") << "']\n";
  auto prometheus = absl::WrapUnique(new Prometheus());
  ASSIGN_OR_RETURN(prometheus->process_,
                   Subprocess::Start(
                       {kProgram, "--config.file=" + folder + "/prometheus.yml",
                        "--storage.tsdb.path=" + folder + "/data",
                        "--web.listen-address=127.0.0.1:0"},
                       folder + "/prometheus.log"));
  Await(
      [&] {
        prometheus->address_ = AddressIn(ReadFile(folder + "/prometheus.log"));
        return !prometheus->address_.empty() &&
               prometheus->Get("status/buildinfo").ok();
      },
      absl::Seconds(60));
  if (!prometheus->Get("status/buildinfo").ok()) {
    return absl::UnavailableError(absl::StrCat(
        "Prometheus did not start:\n", ReadFile(folder + "/prometheus.log")));
  }
  return prometheus;
}

absl::StatusOr<Json> Prometheus::Get(absl::string_view path) {
  const std::string answer = HttpGet(address_, absl::StrCat("/api/v1/", path));
  const size_t head = answer.find("\r\n\r\n");
  const std::string body =
      head == std::string::npos ? "" : answer.substr(head + 4);
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::UnavailableError(absl::StrCat("no JSON: ", answer));
  }
  if (json.value("status", "") != "success") {
    return absl::InvalidArgumentError(json.value("error", answer));
  }
  return json["data"];
}

absl::StatusOr<std::vector<Series>> Prometheus::Query(absl::string_view query) {
  ASSIGN_OR_RETURN(const Json data,
                   Get(absl::StrCat("query?query=", Escaped(query))),
                   _ << query);
  std::vector<Series> all;
  for (const Json& series : data["result"]) all.push_back(SeriesOf(series));
  return all;
}

absl::StatusOr<double> Prometheus::Value(absl::string_view query) {
  ASSIGN_OR_RETURN(const std::vector<Series> all, Query(query));
  if (all.empty()) return absl::NotFoundError(std::string(query));
  if (all.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(query, " gives ", all.size(), " series"));
  }
  return all[0].samples.back().second;
}

absl::StatusOr<std::string> RunPromtool(const std::vector<std::string>& args,
                                        const std::string& input) {
  RETURN_IF_ERROR(CheckInstalled(kPromtool));
  static int runs = 0;
  const std::string log =
      absl::StrCat(TestFolder(), "/promtool-", runs++, ".log");
  // Its standard input cannot be named in another way.
  std::vector<std::string> command = {
      "/bin/sh", "-c",  "input=$1; shift; exec \"$@\" <\"$input\"",
      "sh",      input, kPromtool};
  command.insert(command.end(), args.begin(), args.end());
  ASSIGN_OR_RETURN(const std::unique_ptr<Subprocess> process,
                   Subprocess::Start(command, log));
  const std::optional<int> status = process->Wait(absl::Seconds(60));
  const std::string text = ReadFile(log);
  if (status == 0) return text;
  return absl::InternalError(
      absl::StrCat("promtool ", absl::StrJoin(args, " "), ":\n", text));
}

}  // namespace weft::testing
