#include "core/cuda/libraries/shared_library.h"

#include <dlfcn.h>

#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

absl::Status Missing(const char* product, const char* reason) {
  return absl::UnavailableError(
      absl::StrCat("--device cuda: ", reason, "; install ", product,
                   ", or name its folder in LD_LIBRARY_PATH; or use --device cpu"));
}

}  // namespace

absl::Status OpenLibrary(const char* soname, const char* product,
                         absl::Span<const LibraryFunction> functions) {
  void* const library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Missing(product, dlerror());
  std::vector<void*> addresses;
  for (const LibraryFunction& function : functions) {
    addresses.push_back(dlsym(library, function.name));
    if (addresses.back() == nullptr) {
      const absl::Status missing = Missing(product, dlerror());
      dlclose(library);
      return missing;
    }
  }
  for (size_t i = 0; i < functions.size(); ++i) *functions[i].address = addresses[i];
  return absl::OkStatus();
}

}  // namespace lockstep
