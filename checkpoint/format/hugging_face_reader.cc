#include "checkpoint/format/hugging_face_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::checkpoint {

using nlohmann::json;

void ReadWidths(const HfWidths& absent, HfReader& reader) {
  v1::ModelConfig& model = reader.model;
  FieldReader& fields = reader.fields;
  model.set_vocab_size(
      fields.Integer({"vocab_size", absent.vocab, 2, 1048576}));
  model.set_hidden_size(
      fields.Integer({"hidden_size", absent.hidden, 1, 65536}));
  model.set_tie_embeddings(fields.Boolean("tie_word_embeddings", false));
  const double epsilon = fields.Number(absent.epsilon_name, absent.epsilon);
  if (!(epsilon >= 1e-30 && epsilon < 1)) {
    fields.Refuse(absent.epsilon_name, "must be 1e-30 to below 1");
  }
  model.set_norm_epsilon(epsilon);
}

void ReadPaddingToken(std::optional<int64_t> absent, HfReader& reader) {
  constexpr char kName[] = "pad_token_id";
  const int64_t vocab = reader.model.vocab_size();
  std::optional<int64_t> token = absent;
  if (reader.fields.IsNull(kName)) {
    reader.fields.Take(kName);
    token.reset();
  } else if (reader.fields.IsGiven(kName)) {
    token = reader.fields.Integer({kName, 0, -vocab, vocab - 1});
  }
  if (!token.has_value()) return;
  reader.model.set_padding_token(*token < 0 ? *token + vocab : *token);
}

void ReadNumLayers(int64_t absent, HfReader& reader) {
  reader.model.set_num_layers(
      reader.fields.Integer({"num_hidden_layers", absent, 1, 1024}));
}

int64_t ReadTwoNames(const char* first, const char* second, int64_t absent,
                     HfReader& reader) {
  FieldReader& fields = reader.fields;
  const int64_t by_first = fields.Integer({first, absent, 1, 4096});
  const int64_t value = fields.Integer({second, by_first, 1, 4096});
  if (fields.IsGiven(first) && value != by_first && fields.AreFine({first})) {
    fields.Refuse(first, absl::StrCat("must be as ", second, ", ", value));
  }
  return value;
}

int64_t ReadTopK(int64_t absent, int64_t experts,
                 std::initializer_list<const char*> names, HfReader& reader) {
  constexpr char kTopK[] = "num_experts_per_tok";
  FieldReader& fields = reader.fields;
  const int64_t top_k = fields.Integer({kTopK, absent, 1, 4096});
  if (fields.AreFine(names) && fields.AreFine({kTopK}) && top_k > experts) {
    fields.Refuse(kTopK, absl::StrCat(top_k, " must be at most the ", experts,
                                      " experts"));
  }
  return top_k;
}

std::string ReadLayerWords(const char* name, const json& list,
                           const std::vector<HfLayerWord>& words, int64_t count,
                           HfReader& reader) {
  std::string symbols;
  std::vector<std::string> known;
  for (const HfLayerWord& word : words) {
    known.push_back(absl::StrCat("\"", word.word, "\""));
  }
  bool is_fine = list.is_array() && !list.empty() && list.size() <= 1024 &&
                 (count == 0 || static_cast<int64_t>(list.size()) == count);
  for (size_t i = 0; is_fine && i < list.size(); ++i) {
    const auto found = std::find_if(
        words.begin(), words.end(),
        [&](const HfLayerWord& word) { return list[i] == word.word; });
    is_fine = found != words.end();
    if (is_fine) symbols.push_back(found->symbol);
  }
  if (is_fine) return symbols;
  reader.fields.Refuse(
      name,
      absl::StrCat("must be one of ", absl::StrJoin(known, ", "),
                   " for each of the ",
                   count == 0 ? "1 to 1024" : absl::StrCat(count), " layers"));
  return "";
}

std::string GroupedPattern(const std::string& symbols, char last) {
  std::string pattern;
  for (char symbol : symbols) {
    pattern.append({'[', symbol, last, ']'});
  }
  return pattern;
}

void MustBe(const char* name, const json& value, const char* why,
            HfReader& reader) {
  const json* field = reader.fields.Take(name);
  if (field == nullptr || *field == value) return;
  reader.fields.Refuse(name, absl::StrCat("must be ", value.dump(), ": ", why));
}

void MustBeNull(const char* name, const char* why, HfReader& reader) {
  if (reader.fields.TakeUnlessNull(name) == nullptr) return;
  reader.fields.Refuse(name, absl::StrCat("must be null: ", why));
}

void TakeAll(std::initializer_list<const char*> names, HfReader& reader) {
  for (const char* name : names) reader.fields.Take(name);
}

void CheckSilu(const char* name, HfReader& reader) {
  const json* activation = reader.fields.Take(name);
  if (activation != nullptr && *activation != "silu") {
    reader.fields.Refuse(name, "must be \"silu\"");
  }
}

void CheckRouterLoss(HfReader& reader) {
  FieldReader& fields = reader.fields;
  const double loss = fields.Number("router_aux_loss_coef", 0.001);
  if (fields.Boolean("output_router_logits", false) && loss != 0) {
    fields.Refuse("output_router_logits",
                  absl::StrCat("must be false unless router_aux_loss_coef, ",
                               loss, ", is 0: it adds a loss of the router"));
  }
}

void CheckDropout(const char* name, bool nullable, HfReader& reader) {
  if (reader.fields.Number(name, 0, nullable) != 0) {
    reader.fields.Refuse(name, "must be 0: nothing is dropped");
  }
}

}  // namespace weft::checkpoint
