#include "data/format/entropy.h"

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace weft::data {
namespace {

TEST(TextEntropyTest, TextsWhoseEntropyIsKnown) {
  TextEntropy none;
  EXPECT_EQ(none.Unigram(), 0);
  EXPECT_EQ(none.BigramConditional(), 0);

  TextEntropy same;
  same.Add("aaaaaaaa");
  EXPECT_EQ(same.Unigram(), 0);
  EXPECT_EQ(same.BigramConditional(), 0);
  EXPECT_EQ(same.distinct_bytes(), 1);

  TextEntropy alternating;  // half a, half b; the next byte is certain
  alternating.Add("abababab");
  EXPECT_DOUBLE_EQ(alternating.Unigram(), std::log(2.0));
  EXPECT_EQ(alternating.BigramConditional(), 0);

  TextEntropy fair;  // a->a, a->b, b->b, b->a
  fair.Add("aabba");
  EXPECT_DOUBLE_EQ(fair.BigramConditional(), std::log(2.0));
}

// By the definitions, from maps and probabilities.
std::pair<double, double> BruteForce(const std::string& text) {
  std::map<char, double> bytes;
  std::map<std::pair<char, char>, double> pairs;
  std::map<char, double> firsts;
  for (char c : text) bytes[c] += 1;
  for (size_t i = 1; i < text.size(); ++i) {
    pairs[{text[i - 1], text[i]}] += 1;
    firsts[text[i - 1]] += 1;
  }
  double unigram = 0;
  for (const auto& [byte, count] : bytes) {
    const double p = count / static_cast<double>(text.size());
    unigram -= p * std::log(p);
  }
  double bigram = 0;
  for (const auto& [pair, count] : pairs) {
    const double joint = count / static_cast<double>(text.size() - 1);
    bigram -= joint * std::log(count / firsts[pair.first]);
  }
  return {unigram, bigram};
}

TEST(TextEntropyTest, AgreesWithTheDefinitionOnRandomTextInPieces) {
  for (int seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    TextEntropy entropy;
    for (int piece = 0; piece < 10; ++piece) {
      std::string part;
      for (size_t n = random() % 500; n > 0; --n) {
        // Uneven: small bytes are frequent.
        part.push_back(static_cast<char>(random() % (1 + random() % 256)));
      }
      entropy.Add(part);
      text += part;
    }
    const auto [unigram, bigram] = BruteForce(text);
    EXPECT_NEAR(entropy.Unigram(), unigram, 1e-12) << "seed " << seed;
    EXPECT_NEAR(entropy.BigramConditional(), bigram, 1e-12) << "seed " << seed;
    EXPECT_EQ(entropy.bytes(), text.size());
  }
}

}  // namespace
}  // namespace weft::data
