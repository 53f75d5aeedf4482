#include "base/no_destructor.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

struct CountsDestruction {
  explicit CountsDestruction(int* count) : count(count) {}
  ~CountsDestruction() { ++*count; }
  int* count;
};

TEST(NoDestructorTest, DoesNotDestroy) {
  int destroyed = 0;
  { NoDestructor<CountsDestruction> object(&destroyed); }
  EXPECT_EQ(destroyed, 0);
}

TEST(NoDestructorTest, ReachesTheObject) {
  static NoDestructor<std::string> text(3, 'x');
  EXPECT_EQ(*text, "xxx");
  EXPECT_EQ(text->size(), 3);
  text->push_back('y');
  EXPECT_EQ(*text.get(), "xxxy");
}

}  // namespace
}  // namespace weft
