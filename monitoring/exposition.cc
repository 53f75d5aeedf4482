#include "monitoring/exposition.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft::monitoring {
namespace {

using Names = std::set<std::string>;

// What the text says of one metric.
struct Seen {
  std::string help;
  std::string type;
  std::set<Names> labels;  // of its series
};

// The names between the braces of a sample; their values may hold anything.
Names LabelNames(absl::string_view labels) {
  Names names;
  while (!labels.empty()) {
    const size_t equals = labels.find("=\"");
    if (equals == absl::string_view::npos) break;
    names.insert(std::string(labels.substr(0, equals)));
    size_t end = equals + 2;
    while (end < labels.size() && labels[end] != '"') {
      end += labels[end] == '\\' ? 2 : 1;
    }
    labels.remove_prefix(std::min(end + 1, labels.size()));
    absl::ConsumePrefix(&labels, ",");
  }
  return names;
}

// The metric of a sample: a histogram's have names of their own.
std::string MetricOf(absl::string_view sample,
                     const std::map<std::string, Seen>& seen) {
  for (absl::string_view part : {"_bucket", "_sum", "_count"}) {
    absl::string_view base = sample;
    if (!absl::ConsumeSuffix(&base, part)) continue;
    const auto found = seen.find(std::string(base));
    if (found != seen.end() && found->second.type == "histogram") {
      return std::string(base);
    }
  }
  return std::string(sample);
}

std::map<std::string, Seen> Read(absl::string_view text) {
  std::map<std::string, Seen> seen;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (words.size() == 4 && words[0] == "#") {
      Seen& metric = seen[std::string(words[2])];
      (words[1] == "HELP" ? metric.help : metric.type) = std::string(words[3]);
      continue;
    }
    const size_t end = line.find_first_of("{ ");
    const std::string metric = MetricOf(line.substr(0, end), seen);
    Names names;
    if (line[end] == '{') {
      names = LabelNames(line.substr(end + 1, line.rfind('}') - end - 1));
    }
    names.erase("le");  // of a bucket
    seen[metric].labels.insert(names);
  }
  return seen;
}

}  // namespace

std::vector<std::string> DifferencesFrom(absl::Span<const MetricSpec> specs,
                                         absl::string_view text) {
  std::map<std::string, Seen> seen = Read(text);
  std::vector<std::string> differences;
  for (const MetricSpec& spec : specs) {
    const auto metric = seen.extract(spec.name);
    if (metric.empty() || metric.mapped().labels.empty()) {
      differences.push_back(absl::StrCat(spec.name, ": no series"));
      continue;
    }
    const auto& [help, type, series] = metric.mapped();
    if (help != spec.help) {
      differences.push_back(absl::StrCat(spec.name, ": help \"", help, "\""));
    }
    if (type != Name(spec.type)) {
      differences.push_back(
          absl::StrCat(spec.name, ": type ", type, ", not ", Name(spec.type)));
    }
    const Names declared = absl::StrSplit(spec.labels, ',', absl::SkipEmpty());
    for (const Names& labels : series) {
      if (labels == declared) continue;
      differences.push_back(absl::StrCat(spec.name, ": labels ",
                                         absl::StrJoin(labels, ","), ", not ",
                                         absl::StrJoin(declared, ",")));
    }
  }
  for (const auto& [name, metric] : seen) {
    if (!metric.labels.empty()) {
      differences.push_back(absl::StrCat(name, ": not declared"));
    }
  }
  return differences;
}

}  // namespace weft::monitoring
