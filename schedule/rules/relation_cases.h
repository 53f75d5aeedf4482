// Jobs that break one relation rule each, for tests.
#ifndef WEFT_SCHEDULE_RULES_RELATION_CASES_H_
#define WEFT_SCHEDULE_RULES_RELATION_CASES_H_

#include <string>
#include <vector>

namespace weft::schedule {

struct RelationCase {
  std::string job;      // text proto over the legal job
  std::string field;    // the violation's
  std::string allowed;  // of the rule; tells rules of one field apart
  std::string says;     // part of the description
};

// Of rules of the model: its attention, its layers and what they are made of,
// its experts.
std::vector<RelationCase> AttentionCases();
std::vector<RelationCase> LayerCases();
std::vector<RelationCase> ExpertCases();

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_RULES_RELATION_CASES_H_
