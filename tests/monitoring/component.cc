#include "tests/monitoring/component.h"

#include <fstream>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace weft::testing {
namespace {

constexpr char kFolder[] = "deploy/kustomize/components/prometheus";

}  // namespace

Rules ReadRules() {
  const YAML::Node object =
      YAML::LoadFile(absl::StrCat(kFolder, "/rules.yaml"));
  Rules rules;
  rules.text = YAML::Dump(object["spec"]);
  for (const YAML::Node& group : object["spec"]["groups"]) {
    for (const YAML::Node& rule : group["rules"]) {
      const auto expr = rule["expr"].as<std::string>();
      if (rule["record"]) {
        rules.records.push_back({rule["record"].as<std::string>(), expr});
      } else {
        rules.alerts.push_back(
            {rule["alert"].as<std::string>(), expr,
             rule["annotations"]["runbook_url"].as<std::string>()});
      }
    }
  }
  return rules;
}

std::vector<std::string> ReadDashboard() {
  std::ifstream file(absl::StrCat(kFolder, "/dashboard.json"));
  const nlohmann::json dashboard = nlohmann::json::parse(file);
  std::vector<std::string> exprs;
  for (const nlohmann::json& panel : dashboard.at("panels")) {
    for (const nlohmann::json& target : panel.at("targets")) {
      exprs.push_back(target.at("expr"));
    }
  }
  return exprs;
}

std::set<std::string> NamesIn(const std::string& expr) {
  static const std::regex kQuoted("\"[^\"]*\"");
  static const std::regex kWord("[A-Za-z_][A-Za-z0-9_:]*");
  const std::string bare = std::regex_replace(expr, kQuoted, "");
  std::set<std::string> names;
  for (std::sregex_iterator it(bare.begin(), bare.end(), kWord), end; it != end;
       ++it) {
    const std::string word = it->str();
    if (absl::StrContains(word, ":") || absl::StartsWith(word, "weft_")) {
      names.insert(word);
    }
  }
  return names;
}

}  // namespace weft::testing
