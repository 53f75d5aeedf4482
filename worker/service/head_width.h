// Whether a kind of device has attention for a job's heads.
#ifndef WEFT_WORKER_SERVICE_HEAD_WIDTH_H_
#define WEFT_WORKER_SERVICE_HEAD_WIDTH_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "model/shape.h"

namespace weft::service {

// INVALID_ARGUMENT, naming field, width and kind, when some layer's heads of
// queries, keys or values are wider than `widest`; nothing: any width will do.
absl::Status CheckHeadWidth(const model::Shape& shape,
                            std::optional<int64_t> widest,
                            absl::string_view device_kind);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_HEAD_WIDTH_H_
