#include "base/advertised_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::EndsWith;
using ::testing::Not;
using ::testing::StartsWith;

TEST(AdvertisedAddressTest, AnAddressOfTheMachineStaysAsItIs) {
  for (const char* address :
       {"127.0.0.1:80", "10.1.2.3:0", "[::1]:7070", "host.example:1", ""}) {
    EXPECT_EQ(AdvertisedAddress(address), address);
  }
}

TEST(AdvertisedAddressTest, WhatListensOnAllAddressesIsFoundUnderOne) {
  EXPECT_THAT(AdvertisedAddress("[::]:7070"),
              AllOf(EndsWith(":7070"), Not(StartsWith("[::]"))));
  const std::string address = AdvertisedAddress("0.0.0.0:7070");
  ASSERT_THAT(address, EndsWith(":7070"));
  const std::string host = address.substr(0, address.size() - 5);
  EXPECT_NE(host, "0.0.0.0");
  // It is this machine's: a socket can be bound to it.
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &any.sin_addr) != 1) {
    EXPECT_THAT(host, StartsWith("["));  // there is no IPv4
    return;
  }
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
  close(fd);
}

}  // namespace
}  // namespace weft
