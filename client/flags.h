// Values of the command line that are checked as they are read, so that a wrong
// one is refused by its flag's name.
#ifndef WEFT_CLIENT_FLAGS_H_
#define WEFT_CLIENT_FLAGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

namespace weft::client {

// Adds a flag for an integer in [min, max], written in decimal digits.
CLI::Option* AddInteger(CLI::App* command, const std::string& names,
                        int64_t* value, std::pair<int64_t, int64_t> range,
                        const std::string& help);

// Adds a flag for a finite number in [min, max].
CLI::Option* AddNumber(CLI::App* command, const std::string& names,
                       double* value, std::pair<double, double> range,
                       const std::string& help);

// Checks of text. What they refuse is "x is not one of a, b", or not UTF-8 and
// so nothing a coordinator can be told.
CLI::Validator OneOf(const std::vector<std::string>& choices);
CLI::Validator Utf8Text();

// Makes every flag and argument of `app` and of the commands below refuse an
// empty value. Call it when all are added.
void RefuseEmptyValues(CLI::App* app);

// Throws a CLI::ParseError for words such as "--flag=", behind which the parser
// would take the next word for the value.
void RefuseFlagsWithoutValue(int argc, const char* const* argv);

}  // namespace weft::client

#endif  // WEFT_CLIENT_FLAGS_H_
