#include "core/kernels/kernels.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep {

void Kernels::Lack(const char* kernel) {
  throw StatusException(absl::UnimplementedError(
      absl::StrCat("the kernels of ", Name(device().type), " lack ", kernel)));
}

Tensor Kernels::Upload(const Tensor& host) {
  if (host.device() == device()) return host;
  Tensor copy = EmptyLike(host);
  CopyFromHost(host.raw(), copy);
  return copy;
}

}  // namespace lockstep
