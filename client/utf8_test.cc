#include "client/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace weft::client {
namespace {

TEST(Utf8Test, WellFormedTextIsTold) {
  for (const char* text :
       {"", "abc", "\x7f", "\u00e9", "\u20ac", "\U0001f600", "\U0010ffff"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  for (const char* text :
       {"\xff", "a\xe9t\xe9", "\x80", "\xc3", "\xe2\x82", "\xc0\x80",
        "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3("}) {
    EXPECT_FALSE(IsUtf8(text)) << Printable(text);
  }
}

TEST(Utf8Test, WhatCouldSteerATerminalIsEscaped) {
  EXPECT_EQ(Printable("na\u00efve \u20ac"), "na\u00efve \u20ac");
  EXPECT_EQ(Printable("\x1b[2Jgone\r\a\x7f"), "\\x1b[2Jgone\\x0d\\x07\\x7f");
  EXPECT_EQ(Printable("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(Printable("\u009b31m"), "\\xc2\\x9b31m");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable(std::string(1, '\0')), "\\x00");
}

}  // namespace
}  // namespace weft::client
