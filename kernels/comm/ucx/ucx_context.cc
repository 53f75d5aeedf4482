#include "kernels/comm/ucx/ucx_context.h"

#include <ucs/config/global_opts.h>

#include <cstdlib>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/ucx/ucx_error.h"

namespace weft::comm::ucx {
namespace {

struct Setting {
  const char* variable;
  // What ucp_config_modify() calls it: a transport's setting goes without the
  // transport's name.
  const char* key;
  const char* value;
};

constexpr Setting kSettings[] = {
    {"UCX_TLS", "TLS", "posix,self,tcp"},
    {"UCX_TCP_PUT_ENABLE", "PUT_ENABLE", "n"},
    {"UCX_POSIX_FIFO_SIZE", "FIFO_SIZE", "256"},
};

struct ReleaseConfig {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

absl::Status ApplySettings(ucp_config_t* config) {
  for (const Setting& setting : kSettings) {
    if (std::getenv(setting.variable) != nullptr) continue;
    RETURN_IF_ERROR(ToStatus(
        ucp_config_modify(config, setting.key, setting.value),
        absl::StrCat("setting UCX's ", setting.key, " to ", setting.value)));
  }
  return absl::OkStatus();
}

// The level is one of the whole process.
bool QuietUnlessTold() {
  return std::getenv("UCX_LOG_LEVEL") == nullptr &&
         ucs_global_opts_set_value("LOG_LEVEL", "error") == UCS_OK;
}

absl::StatusOr<ucp_context_h> Init(const ucp_config_t* config) {
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  RETURN_IF_ERROR(ToStatus(ucp_init(&params, config, &context), "ucp_init"));
  return context;
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Create() {
  static const bool is_quiet = QuietUnlessTold();
  (void)is_quiet;
  ucp_config_t* read = nullptr;
  RETURN_IF_ERROR(ToStatus(ucp_config_read(nullptr, nullptr, &read),
                           "reading UCX's environment variables"));
  const std::unique_ptr<ucp_config_t, ReleaseConfig> config(read);
  RETURN_IF_ERROR(ApplySettings(config.get()));
  ASSIGN_OR_RETURN(ucp_context_h context, Init(config.get()));
  return absl::WrapUnique(new UcxContext(context));
}

UcxContext::~UcxContext() { ucp_cleanup(context_); }

}  // namespace weft::comm::ucx
