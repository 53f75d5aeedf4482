#include <pthread.h>

#include <cstddef>

#include "gtest/gtest.h"

namespace {

size_t GivenFor(size_t asked) {
  pthread_attr_t attributes;
  EXPECT_EQ(pthread_attr_init(&attributes), 0);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, asked), 0);
  size_t given = 0;
  EXPECT_EQ(pthread_attr_getstacksize(&attributes, &given), 0);
  EXPECT_EQ(pthread_attr_destroy(&attributes), 0);
  return given;
}

// What civetweb asks for, of which cuBLAS alone takes 94 KiB.
TEST(ThreadStacksTest, SmallStacksHaveRoomForThreadLocalStorage) {
  EXPECT_GE(GivenFor(102400), size_t{1} << 20);
}

TEST(ThreadStacksTest, LargeStacksStayAsTheyAre) {
  EXPECT_EQ(GivenFor(size_t{8} << 20), size_t{8} << 20);
}

}  // namespace
