#include "client/cost_file.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/json_file.h"
#include "client/simulation.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

using nlohmann::json;
using schedule::CostTable;
using schedule::OpCost;
using schedule::Sharing;

constexpr double kMaxCost = 1e9;
constexpr double kLeastCores = 0.01;  // fewer are none
constexpr char kFormat[] = "weft.costs.v2";

template <typename Type>
struct Field {
  const char* name;
  double Type::*number;
};

constexpr Field<CostTable> kTableFields[] = {
    {"wait_seconds", &CostTable::wait_seconds},
    {"step_seconds", &CostTable::step_seconds},
};

constexpr Field<Sharing> kSharingFields[] = {
    {"cores", &Sharing::cores},
    {"crowding", &Sharing::crowding},
};

constexpr Field<OpCost> kOpFields[] = {
    {"fixed", &OpCost::fixed},
    {"per_flop", &OpCost::per_flop},
    {"per_attention_flop", &OpCost::per_attention_flop},
    {"per_byte", &OpCost::per_byte},
    {"per_wire_byte", &OpCost::per_wire_byte},
    {"per_peer", &OpCost::per_peer},
};

absl::Status Wrong(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, " ", what));
}

// Reads the numbers of `object`, each of which must be there. It may have no
// fields but them and `others`.
template <typename Type, size_t kFields>
absl::Status ReadNumbers(const json& object, const std::string& prefix,
                         const Field<Type> (&fields)[kFields],
                         const std::set<std::string>& others, Type* out) {
  if (!object.is_object()) return Wrong(prefix, "is no object");
  for (const Field<Type>& field : fields) {
    const std::string name = prefix + field.name;
    const auto it = object.find(field.name);
    if (it == object.end()) return Wrong(name, "is missing");
    if (!it->is_number()) return Wrong(name, "is no number");
    const double value = it->template get<double>();
    if (!(value >= 0 && value <= kMaxCost)) {
      return Wrong(name, absl::StrCat("is ", value, "; must be 0 to 1e9"));
    }
    out->*field.number = value;
  }
  for (const auto& item : object.items()) {
    bool is_known = others.count(item.key()) > 0;
    for (const Field<Type>& field : fields) {
      is_known |= item.key() == field.name;
    }
    if (!is_known) return Wrong(prefix + item.key(), "is unknown");
  }
  return absl::OkStatus();
}

absl::StatusOr<CostTable> Parse(const json& file) {
  if (file.value("format", json()) != kFormat) {
    return Wrong("format", absl::StrCat("is not ", kFormat));
  }
  CostTable costs;
  RETURN_IF_ERROR(ReadNumbers(file, "", kTableFields,
                              {"format", "sharing", "ops"}, &costs));
  RETURN_IF_ERROR(ReadNumbers(file.value("sharing", json()), "sharing.",
                              kSharingFields, {}, &costs.sharing));
  const double cores = costs.sharing.cores;
  if (cores > 0 && cores < kLeastCores) {
    return Wrong("sharing.cores",
                 absl::StrCat("is ", cores, "; must be 0, or at least 0.01"));
  }
  const auto ops = file.find("ops");
  if (ops == file.end() || !ops->is_object()) {
    return Wrong("ops", "is no object");
  }
  for (const auto& item : ops->items()) {
    RETURN_IF_ERROR(ReadNumbers(item.value(),
                                absl::StrCat("ops.", item.key(), "."),
                                kOpFields, {}, &costs.ops[item.key()]));
  }
  return costs;
}

template <typename Type, size_t kFields>
json ToJson(const Type& from, const Field<Type> (&fields)[kFields]) {
  json object;
  for (const Field<Type>& field : fields) {
    object[field.name] = from.*field.number;
  }
  return object;
}

}  // namespace

absl::StatusOr<CostTable> ReadCosts(const std::string& path) {
  ASSIGN_OR_RETURN(const json file, ReadJsonFile(path));
  ASSIGN_OR_RETURN(CostTable costs, Parse(file), _ << "cost table " << path);
  return costs;
}

absl::Status WriteCosts(const CostTable& costs, const std::string& path) {
  json file = ToJson(costs, kTableFields);
  file["format"] = kFormat;
  file["sharing"] = ToJson(costs.sharing, kSharingFields);
  file["ops"] = json::object();
  for (const auto& [name, cost] : costs.ops) {
    file["ops"][name] = ToJson(cost, kOpFields);
  }
  return WriteTextFile(path, file.dump(1) + "\n");
}

}  // namespace weft::client
