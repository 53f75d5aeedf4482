// Plain HTTP to a server on this machine. For tests.
#ifndef WEFT_MONITORING_HTTP_GET_H_
#define WEFT_MONITORING_HTTP_GET_H_

#include <string>

#include "absl/strings/string_view.h"

namespace weft::monitoring {

// A connection to the port of `address` on 127.0.0.1.
class HttpConnection {
 public:
  explicit HttpConnection(absl::string_view address);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  bool is_open() const { return is_open_; }

  // Sends a request without a body; the whole answer, head and body, or "" when
  // nobody answers. Once.
  std::string Call(absl::string_view method, absl::string_view path);

 private:
  const int fd_;
  bool is_open_ = false;
};

std::string HttpGet(absl::string_view address, absl::string_view path);

}  // namespace weft::monitoring

#endif  // WEFT_MONITORING_HTTP_GET_H_
