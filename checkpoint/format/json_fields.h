// Fields of a JSON object that somebody else's program wrote, read by name so
// that none is ignored by accident.
#ifndef WEFT_CHECKPOINT_FORMAT_JSON_FIELDS_H_
#define WEFT_CHECKPOINT_FORMAT_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {

// A JSON object from text of at most `max_bytes` bytes. INVALID_ARGUMENT when
// it is larger, not JSON, not an object, nested more than 16 levels deep, or
// has a key twice in one object.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text,
                                               int64_t max_bytes);

// Text of a JSON value for a message: ASCII, shortened when long.
std::string ShortText(const nlohmann::json& value);

// An integer field. Absent, it is `fallback`, which need not be in the range;
// so is null when `nullable`.
struct IntegerField {
  const char* name;
  int64_t fallback;
  int64_t min;
  int64_t max;
  bool nullable = false;
};

// Reads the fields of an object and collects what is wrong with them, so that
// all of it can be told at once.
//
//   FieldReader fields(object);
//   const int64_t width = fields.Integer({"hidden_size", 4096, 1, 65536});
//   if (width % 2 != 0) fields.Refuse("hidden_size", "must be even");
//   fields.RefuseTheRest("is not known");
//
// Requires: `object` is a JSON object and outlives the reader.
// Guarantees: a field is read, refused, or stays for RefuseTheRest().
// Thread-compatible.
class FieldReader {
 public:
  // `prefix` goes before each name in refusals.
  explicit FieldReader(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // The field as it is; null when it is absent. Any value of it is right.
  const nlohmann::json* Take(const char* name);
  // Null when it is absent, or JSON's null.
  const nlohmann::json* TakeUnlessNull(const char* name);
  bool IsNull(const char* name) const;
  bool IsGiven(const char* name) const { return object_.contains(name); }
  // Refuses those that are absent.
  void Require(std::initializer_list<const char*> names);

  // A value of another type or out of its range is refused, and `fallback`
  // returned for it.
  int64_t Integer(const IntegerField& field);
  bool Boolean(const char* name, bool fallback);
  // Finite.
  double Number(const char* name, double fallback, bool nullable = false);
  // A list of as many numbers as `fallback`, which may be infinite, not NaN.
  std::vector<double> Numbers(const char* name, std::vector<double> fallback);

  // Refuses a field that has been read: what `rule` says must hold.
  void Refuse(const char* name, absl::string_view rule);
  // Adds refusals of a reader of an object inside this one.
  void Append(const FieldReader& inner);
  // Refuses every field that has not been read.
  void RefuseTheRest(absl::string_view rule);

  // Whether none of these fields has been refused.
  bool AreFine(std::initializer_list<const char*> names) const;
  // Each as "field=value: rule".
  const std::vector<std::string>& refusals() const { return refusals_; }
  // INVALID_ARGUMENT with all of them (the first 64 when they are more), or OK.
  absl::Status Refusals() const;

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  std::set<std::string> read_;
  std::set<std::string> refused_;
  std::vector<std::string> refusals_;
};

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_JSON_FIELDS_H_
