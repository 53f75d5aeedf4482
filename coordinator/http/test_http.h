// Plain HTTP to a server on this machine.
#ifndef WEFT_COORDINATOR_HTTP_TEST_HTTP_H_
#define WEFT_COORDINATOR_HTTP_TEST_HTTP_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft::coordinator {

// A connection to the port of `address` on 127.0.0.1. Not copyable.
class TestConnection {
 public:
  explicit TestConnection(absl::string_view address) {
    int port = 0;
    if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) {
      return;
    }
    sockaddr_in server = {};
    server.sin_family = AF_INET;
    server.sin_port = htons(port);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ =
        connect(fd_, reinterpret_cast<sockaddr*>(&server), sizeof(server)) == 0;
  }
  TestConnection(const TestConnection&) = delete;
  TestConnection& operator=(const TestConnection&) = delete;
  ~TestConnection() { close(fd_); }

  bool is_open() const { return is_open_; }

  // Sends a request without a body; the whole answer, head and body.
  std::string Call(absl::string_view method, absl::string_view path) {
    const std::string request =
        absl::StrCat(method, " ", path, " HTTP/1.0\r\n\r\n");
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

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  bool is_open_ = false;
};

inline std::string HttpGet(absl::string_view address, absl::string_view path) {
  return TestConnection(address).Call("GET", path);
}

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_HTTP_TEST_HTTP_H_
