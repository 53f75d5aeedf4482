#include "base/advertised_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// Empty unless `address` is one of `family` that other machines can reach.
std::string HostOf(const ifaddrs& address, int family) {
  if (address.ifa_addr == nullptr || address.ifa_addr->sa_family != family ||
      (address.ifa_flags & IFF_UP) == 0 ||
      (address.ifa_flags & IFF_LOOPBACK) != 0) {
    return "";
  }
  char text[INET6_ADDRSTRLEN] = "";
  if (family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address.ifa_addr);
    inet_ntop(family, &v4.sin_addr, text, sizeof(text));
    return absl::StartsWith(text, "169.254.") ? "" : text;  // of the link
  }
  const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address.ifa_addr);
  if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return "";
  inet_ntop(family, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat("[", text, "]");
}

std::string OwnHost() {
  std::string host;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "127.0.0.1";
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* a = all; a != nullptr && host.empty();
         a = a->ifa_next) {
      host = HostOf(*a, family);
    }
  }
  freeifaddrs(all);
  return host.empty() ? "127.0.0.1" : host;
}

}  // namespace

std::string AdvertisedAddress(absl::string_view listening) {
  const size_t colon = listening.rfind(':');
  if (colon == absl::string_view::npos) return std::string(listening);
  const absl::string_view host = listening.substr(0, colon);
  if (host != "0.0.0.0" && host != "[::]") return std::string(listening);
  return absl::StrCat(OwnHost(), listening.substr(colon));
}

}  // namespace weft
