#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "schedule/plan.h"
#include "schedule/taps.h"

namespace weft::schedule {
namespace {

// A value without the name of its layer.
struct Line {
  std::string name;
  std::string type;

  bool operator==(const Line& other) const {
    return name == other.name && type == other.type;
  }
};

Line LineOf(const model::ModelDecl& model, const model::ValueDecl& value) {
  Line line;
  line.name = std::string(
      absl::StripPrefix(value.name, model.layers[value.layer].name));
  line.type =
      absl::StrCat(Name(value.dtype), " [", value.counts >= 0 ? "up to " : "",
                   value.max_rows, ", ", value.columns, "]");
  return line;
}

// "layers.{1..60}" for the layers of one kind from `first` to `last`.
std::string NameOfRun(const model::ModelDecl& model, int first, int last) {
  const std::string& name = model.layers[first].name;
  if (first == last) return name;
  const size_t dot = name.rfind('.');
  return absl::StrCat(name.substr(0, dot + 1), "{", name.substr(dot + 1), "..",
                      model.layers[last].name.substr(dot + 1), "}");
}

}  // namespace

std::string DescribeValues(const Plan& plan) {
  const model::ModelDecl& model = plan.model;
  std::vector<std::vector<Line>> layers(model.layers.size());
  for (int value : TappableValues(model)) {
    const model::ValueDecl& decl = model.values[value];
    layers[decl.layer].push_back(LineOf(model, decl));
  }
  std::string text = "values of a microbatch, as output.taps names them:\n";
  for (int first = 0; first < layers.size(); ++first) {
    int last = first;
    while (last + 1 < layers.size() &&
           model.layers[last + 1].kind == model.layers[first].kind &&
           layers[last + 1] == layers[first]) {
      ++last;
    }
    const std::string name = NameOfRun(model, first, last);
    for (const Line& line : layers[first]) {
      absl::StrAppendFormat(&text, "  %-38s %s\n", name + line.name, line.type);
    }
    first = last;
  }
  return text;
}

}  // namespace weft::schedule
