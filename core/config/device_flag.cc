#include "core/config/device_flag.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, device, "cpu", "where to compute: cpu or cuda");
