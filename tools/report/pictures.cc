#include "tools/report/pictures.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tools/browser/browser.h"
#include "tools/experiment/outputs.h"

namespace lockstep {
namespace {

constexpr int kScale = 2;

constexpr char kPngBeginning[] = "\x89PNG";

constexpr char kBegin[] = "data:image/png;base64,";

// An object from each chart's id to its picture, and how high the page's picture is to be.
constexpr char kScript[] = R"(
  const pictures = {};
  for (const canvas of document.querySelectorAll('figure canvas')) {
    pictures[canvas.closest('figure').id] = canvas.toDataURL('image/png');
  }
  const end = document.querySelector('section').getBoundingClientRect().bottom;
  return {pictures, height: Math.ceil(end) + 16};
)";

}  // namespace

absl::StatusOr<std::vector<std::string>> WritePictures(const std::string& html,
                                                       const std::string& path) {
  LS_ASSIGN_OR_RETURN(const nlohmann::json found, ResultOfScript(html, kScript, {.scale = kScale}));
  LS_ASSIGN_OR_RETURN(
      const std::string page,
      PictureOf(html, kPageWidth, found.at("height").get<int>(), {.scale = kScale}));
  std::vector<std::string> paths = {path + ".png"};
  std::vector<std::string> pictures = {page};
  for (const auto& [id, url] : found.at("pictures").items()) {
    const std::string data = url.get<std::string>();
    std::string png;
    if (!data.starts_with(kBegin) || !absl::Base64Unescape(data.substr(sizeof(kBegin) - 1), &png)) {
      return absl::InternalError(absl::StrCat("the browser's picture of ", id, " is none"));
    }
    paths.push_back(absl::StrCat(path, "-", id, ".png"));
    pictures.push_back(std::move(png));
  }
  std::vector<OutputFile> outputs;
  for (const std::string& each : paths) {
    outputs.push_back(OutputThatBeginsWith(each, "a PNG picture", kPngBeginning));
  }
  LS_RETURN_IF_ERROR(CheckOutputs(outputs));
  for (size_t i = 0; i < paths.size(); ++i) {
    LS_RETURN_IF_ERROR(WriteFileAtomically(paths[i], pictures[i]));
  }
  return paths;
}

}  // namespace lockstep
