#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/data/cifar10.h"
#include "glog/logging.h"
#include "tools/experiment/paths.h"
#include "tools/hostile/fuzz/fuzz_targets.h"

namespace lockstep {
namespace {

constexpr size_t kRecordBytes = 3073;  // a label, and 32 x 32 pixels in 3 colours

}  // namespace

absl::Status FuzzCifar10(std::string_view input) {
  if (input.empty()) return absl::OkStatus();
  const size_t split =
      std::min(input.size() - 1, kRecordBytes * static_cast<unsigned char>(input[0]));
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  std::ofstream(folder.path() + "/data_batch_1.bin") << input.substr(1, split);
  std::ofstream(folder.path() + "/test_batch.bin") << input.substr(1 + split);
  LS_ASSIGN_OR_RETURN(const auto images, Cifar10::Load(folder.path(), {.directory = "."}));
  CHECK_EQ((images->size(Split::kTrain) + images->size(Split::kValidation)) * kRecordBytes,
           input.size() - 1);
  for (const double each : images->mean()) CHECK(std::isfinite(each));
  for (const double each : images->standard_deviation()) CHECK(std::isfinite(each));
  CHECK(!images->Describe().empty());
  return absl::OkStatus();
}

}  // namespace lockstep
