#include "client/file_commands.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/params_diff.h"
#include "client/params_export.h"
#include "client/prepare.h"
#include "client/report.h"
#include "data/format/indexed_dataset.h"

namespace weft::client {
namespace {

struct TokenRange {
  int64_t min = std::numeric_limits<int64_t>::max();
  int64_t max = std::numeric_limits<int64_t>::min();
};

absl::StatusOr<TokenRange> FindTokenRange(const data::IndexedDataset& dataset) {
  TokenRange range;
  std::vector<int64_t> tokens(1 << 16);
  for (int64_t begin = 0; begin < dataset.num_tokens();) {
    const int64_t n = std::min<int64_t>(static_cast<int64_t>(tokens.size()),
                                        dataset.num_tokens() - begin);
    const auto piece = absl::MakeSpan(tokens).first(static_cast<size_t>(n));
    RETURN_IF_ERROR(dataset.Read(begin, piece));
    const auto [min, max] = std::minmax_element(piece.begin(), piece.end());
    range.min = std::min(range.min, *min);
    range.max = std::max(range.max, *max);
    begin += n;
  }
  return range;
}

absl::StatusOr<Record> DescribeDataset(const std::string& prefix) {
  ASSIGN_OR_RETURN(const auto dataset, data::IndexedDataset::Open(prefix));
  ASSIGN_OR_RETURN(const TokenRange range, FindTokenRange(dataset));
  Record record;
  record.Add("prefix", prefix);
  record.Add("token_type", Name(dataset.index().type()));
  record.Add("tokens", dataset.num_tokens());
  record.Add("sequences", dataset.index().num_sequences());
  record.Add("documents", dataset.index().num_documents());
  if (dataset.num_tokens() > 0) {
    record.Add("min_token", range.min).Add("max_token", range.max);
  }
  return record;
}

// The prefix of the dataset that `name` means: itself, or that of the .bin or
// .idx file it names.
std::string PrefixOf(const std::string& name) {
  std::error_code error;
  if (std::filesystem::exists(name + ".idx", error)) return name;
  for (absl::string_view extension : {".bin", ".idx"}) {
    if (absl::EndsWith(name, extension)) {
      return name.substr(0, name.size() - extension.size());
    }
  }
  return name;
}

struct Folders {
  ParamFolder a;
  ParamFolder b;
};

absl::StatusOr<Folders> OpenFolders(const std::string& a,
                                    const std::string& b) {
  ASSIGN_OR_RETURN(ParamFolder folder_a, ParamFolder::Open(a));
  ASSIGN_OR_RETURN(ParamFolder folder_b, ParamFolder::Open(b));
  return Folders{std::move(folder_a), std::move(folder_b)};
}

Record DiffRecord(const ParamsDiff& diff) {
  Record record;
  record.Add("identical", diff.identical());
  record.Add("parameters", diff.params).Add("elements", diff.elements);
  if (diff.identical()) return record;
  record.Add("differing_parameters", diff.differing_params);
  record.Add("differing_elements", diff.differing_elements);
  const auto add_count = [&](const char* key, int64_t count) {
    if (count > 0) record.Add(key, count);
  };
  add_count("only_in_a", diff.only_in_a);
  add_count("only_in_b", diff.only_in_b);
  add_count("of_other_type_or_size", diff.other_shapes);
  record.Add("first_difference", diff.first);
  if (!diff.max_at.empty()) {
    record.Add("max_relative_error", diff.max_relative_error);
    record.Add("max_relative_error_at", diff.max_at);
  }
  return record;
}

}  // namespace

ExitCode DataPrepare(Session& session, const std::string& input,
                     const std::string& prefix) {
  const auto prepared = PrepareBytes(input, prefix);
  if (!prepared.ok()) return ReportError(session.err, prepared.status());
  Record record;
  record.Add("prefix", prefix).Add("tokenizer", "byte");
  record.Add("vocab_size", prepared->vocab_size);
  record.Add("tokens", prepared->tokens);
  record.Add("distinct_tokens", prepared->distinct_tokens);
  const auto add_entropy = [&](const char* key, double nats) {
    if (session.format == Format::kTable) {
      record.Add(key, absl::StrFormat("%.3f nats a token", nats));
    } else {
      record.Add(key, nats);
    }
  };
  add_entropy("unigram_entropy", prepared->unigram_entropy);
  add_entropy("bigram_conditional_entropy", prepared->bigram_entropy);
  session.out << record.ToString(session.format);
  return kExitOk;
}

ExitCode DataInfo(Session& session, const std::string& prefix) {
  const auto record = DescribeDataset(PrefixOf(prefix));
  if (!record.ok()) return ReportError(session.err, record.status());
  session.out << record->ToString(session.format);
  return kExitOk;
}

ExitCode DiffParams(Session& session, const std::string& folder_a,
                    const std::string& folder_b, double tolerance) {
  const auto folders = OpenFolders(folder_a, folder_b);
  if (!folders.ok()) return ReportError(session.err, folders.status());
  const ParamsDiff diff = CompareParams(folders->a, folders->b);
  session.out << DiffRecord(diff).ToString(session.format);
  const bool is_close = !diff.is_structural() && tolerance > 0 &&
                        diff.max_relative_error <= tolerance;
  return diff.identical() || is_close ? kExitOk : kExitFailed;
}

ExitCode ExportParams(Session& session, const std::string& from,
                      const std::string& config, const std::string& to) {
  const auto params = ParamFolder::Open(from);
  if (!params.ok()) return ReportError(session.err, params.status());
  const auto exported = ExportHuggingFace(*params, config, to);
  if (!exported.ok()) return ReportError(session.err, exported.status());
  Record record;
  record.Add("folder", to);
  record.Add("tensors", exported->tensors);
  record.Add("elements", exported->elements);
  session.out << record.ToString(session.format);
  return kExitOk;
}

}  // namespace weft::client
