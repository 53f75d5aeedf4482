#include "monitoring/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft::monitoring {

HttpConnection::HttpConnection(absl::string_view address)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return;
  }
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_port = htons(port);
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  is_open_ =
      connect(fd_, reinterpret_cast<sockaddr*>(&server), sizeof(server)) == 0;
}

HttpConnection::~HttpConnection() { close(fd_); }

std::string HttpConnection::Call(absl::string_view method,
                                 absl::string_view path) {
  const std::string request =
      absl::StrCat(method, " ", path, " HTTP/1.0\r\nHost: test\r\n\r\n");
  std::string answer;
  if (!is_open_ || write(fd_, request.data(), request.size()) <= 0) {
    return answer;
  }
  char buffer[4096];
  for (ssize_t n; (n = read(fd_, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, n);
  }
  return answer;
}

std::string HttpGet(absl::string_view address, absl::string_view path) {
  return HttpConnection(address).Call("GET", path);
}

}  // namespace weft::monitoring
