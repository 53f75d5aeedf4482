#ifndef WEFT_CLIENT_VERSION_H_
#define WEFT_CLIENT_VERSION_H_

namespace weft::client {

// Version of weftctl.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace weft::client

#endif  // WEFT_CLIENT_VERSION_H_
