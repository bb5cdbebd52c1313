#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/tensor/slice.h"

namespace lockstep {

// How files from elsewhere name and lay out a parameter.
struct PublishedTensor {
  enum class Layout {
    kSame,
    kTransposed,  // a matrix that we keep as [out, in] lies there as [in, out]
  };
  enum class Rows {
    kAll,
    kFirst,  // the file may have more rows than the model, which takes the first: positions
  };

  std::string parameter;  // our name
  std::string name;       // theirs
  Layout layout = Layout::kSame;
  Rows rows = Rows::kAll;
  // The rows of our parameter that this tensor has; a count of 0: all. A packed projection is
  // published as several tensors, in the order of its rows.
  Range of_parameter = {0, 0};
};

// The names under which a model's weights are published. A model ships them as data, as it does its
// plan for tensor parallelism; core/checkpoint reads and writes by them. Each parameter that owns
// its value has one name, or several that together have all of its rows.
struct PublishedNames {
  // Second names of a parameter that is tied: a file may hold it twice.
  struct Tied {
    std::string parameter;
    std::string name;
  };

  std::string prefix;  // that files may put before all names but those of `tied`: "transformer."
  std::vector<PublishedTensor> tensors;  // empty: nobody publishes such models
  std::vector<Tied> tied;
  std::vector<std::string> ignored;  // what files hold beside parameters: masks

  // The text of the config.json that describes the model beside such files. Empty: none.
  std::string config = {};
  // Whether `text`, the config.json beside a file, describes this model. An error says what does
  // not fit, to be read behind the file's name. Null: not checked.
  std::function<absl::Status(const std::string& text)> check_config = nullptr;
};

}  // namespace lockstep
