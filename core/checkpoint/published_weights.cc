#include "core/checkpoint/published_weights.h"

#include <algorithm>
#include <cstring>  // std::memcmp
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/half.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

using Layout = PublishedTensor::Layout;

// The shape that a file should show.
std::vector<int64_t> ShapeInFile(const PublishedTensor& published, const Shape& shape) {
  std::vector<int64_t> dims = Dims(shape);
  if (published.layout == Layout::kTransposed) std::reverse(dims.begin(), dims.end());
  return dims;
}

bool ShapeFits(const PublishedTensor& published, const std::vector<int64_t>& stored,
               std::vector<int64_t> wanted) {
  if (published.rows == PublishedTensor::Rows::kFirst && !stored.empty() && !wanted.empty()) {
    wanted[0] = std::max(wanted[0], stored[0]);
  }
  return stored == wanted;
}

bool IsReadable(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Reads elements of one tensor as fp32.
class FloatReader {
 public:
  FloatReader(const SafetensorsReader& reader, const SafetensorsTensor& tensor)
      : reader_(reader), tensor_(tensor) {}

  // Elements first, first + 1, ... in the order of the file.
  absl::Status Read(int64_t first, std::span<float> out) {
    if (tensor_.dtype == "F32") {
      return reader_.Read(tensor_, std::as_writable_bytes(out), first * 4);
    }
    halves_.resize(out.size());
    LS_RETURN_IF_ERROR(
        reader_.Read(tensor_, std::as_writable_bytes(std::span(halves_)), first * 2));
    const auto to_float = tensor_.dtype == "F16" ? HalfToFloat : BFloat16ToFloat;
    std::transform(halves_.begin(), halves_.end(), out.begin(), to_float);
    return absl::OkStatus();
  }

 private:
  const SafetensorsReader& reader_;
  const SafetensorsTensor& tensor_;
  std::vector<uint16_t> halves_;
};

// A range of columns of one row of a matrix, and where its elements go.
struct RowRange {
  int64_t row;
  int64_t begin, end;  // columns
  float* out;
};

std::vector<RowRange> SplitIntoRows(const std::vector<ElementRange>& runs, int64_t columns,
                                    std::span<float> out) {
  std::vector<RowRange> ranges;
  for (const ElementRange& run : runs) {
    for (int64_t done = 0; done < run.elements;) {
      const int64_t at = run.in_whole + done, begin = at % columns;
      const int64_t count = std::min(columns - begin, run.elements - done);
      ranges.push_back({.row = at / columns,
                        .begin = begin,
                        .end = begin + count,
                        .out = out.data() + run.in_slice + done});
      done += count;
    }
  }
  return ranges;
}

// Fills ranges of a matrix [rows, columns] from a file in which it lies as [columns, rows]. Rows
// that follow one another are read together: a stretch of each row of the file, whose elements go
// one to each range.
absl::Status ReadTransposed(FloatReader& file, int64_t rows, const std::vector<RowRange>& ranges) {
  constexpr int64_t kTogether = 4096;  // whose cache lines stay near while columns go by
  std::vector<float> stretch;
  for (auto first = ranges.begin(); first != ranges.end();) {
    auto last = first + 1;
    int64_t begin = first->begin, end = first->end;
    for (; last != ranges.end() && last->row - (last - 1)->row <= 1 &&
           last->row - first->row < kTogether;
         ++last) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
    }
    stretch.resize(static_cast<size_t>((last - 1)->row - first->row + 1));
    for (int64_t column = begin; column < end; ++column) {
      LS_RETURN_IF_ERROR(file.Read(column * rows + first->row, stretch));
      for (auto range = first; range != last; ++range) {
        if (range->begin <= column && column < range->end) {
          range->out[column - range->begin] = stretch[range->row - first->row];
        }
      }
    }
    first = last;
  }
  return absl::OkStatus();
}

// The elements of a part of a parameter, in their order in the part.
absl::Status ReadSlice(const SafetensorsReader& reader, const SafetensorsTensor& tensor,
                       Layout layout, const TensorSlice& part, std::span<float> out) {
  FloatReader file(reader, tensor);
  const std::vector<ElementRange> runs = part.ElementRanges();
  if (layout == Layout::kTransposed) {
    return ReadTransposed(file, part.whole[0], SplitIntoRows(runs, part.whole[1], out));
  }
  for (const ElementRange& run : runs) {
    LS_RETURN_IF_ERROR(file.Read(run.in_whole, out.subspan(static_cast<size_t>(run.in_slice),
                                                           static_cast<size_t>(run.elements))));
  }
  return absl::OkStatus();
}

// [rows, columns] to [columns, rows], in tiles that stay in the first-level cache.
std::vector<float> Transposed(std::span<const float> values, int64_t rows, int64_t columns) {
  constexpr int64_t kTile = 32;
  std::vector<float> out(values.size());
  for (int64_t i = 0; i < rows; i += kTile) {
    for (int64_t j = 0; j < columns; j += kTile) {
      for (int64_t row = i; row < std::min(i + kTile, rows); ++row) {
        for (int64_t column = j; column < std::min(j + kTile, columns); ++column) {
          out[column * rows + row] = values[row * columns + column];
        }
      }
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<PublishedWeights> PublishedWeights::Open(const std::string& path,
                                                        const PublishedNames& names) {
  LS_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
  return PublishedWeights(std::move(reader), names);
}

PublishedWeights::PublishedWeights(SafetensorsReader reader, PublishedNames names)
    : reader_(std::move(reader)),
      names_(std::move(names)),
      has_prefix_(!names_.prefix.empty() &&
                  std::any_of(reader_.tensors().begin(), reader_.tensors().end(),
                              [this](const SafetensorsTensor& tensor) {
                                return tensor.name.starts_with(names_.prefix);
                              })) {}

std::string PublishedWeights::InFile(const std::string& name) const {
  return has_prefix_ ? names_.prefix + name : name;
}

const PublishedTensor& PublishedWeights::Published(const std::string& parameter) const {
  const auto found =
      std::find_if(names_.tensors.begin(), names_.tensors.end(),
                   [&](const PublishedTensor& tensor) { return tensor.parameter == parameter; });
  CHECK(found != names_.tensors.end()) << parameter << " has no published name";
  return *found;
}

absl::Status PublishedWeights::Check(const std::vector<StateTensor>& state) const {
  std::set<std::string> known;
  std::vector<std::string> faults;
  const auto check = [&](const std::string& name, const PublishedTensor& published,
                         const Shape& shape) {
    known.insert(name);
    const SafetensorsTensor* tensor = reader_.Find(name);
    if (tensor == nullptr) return false;
    const std::vector<int64_t> expected = ShapeInFile(published, shape);
    if (!ShapeFits(published, tensor->shape, expected)) {
      faults.push_back(absl::StrCat("'", name, "' has the shape ", ShapeText(tensor->shape),
                                    ", but this model's is ", ShapeText(expected)));
    } else if (!IsReadable(tensor->dtype)) {
      faults.push_back(
          absl::StrCat("'", name, "' is ", tensor->dtype, "; only F32, F16 and BF16 are read"));
    }
    return true;
  };
  for (const StateTensor& wanted : state) {
    const PublishedTensor& published = Published(wanted.name);
    const std::string name = InFile(published.name);
    if (!check(name, published, wanted.full_shape)) {
      faults.push_back(absl::StrCat("'", name, "' is missing"));
    }
    for (const PublishedNames::Tied& tied : names_.tied) {
      if (tied.parameter == wanted.name) check(tied.name, published, wanted.full_shape);
    }
  }
  for (const std::string& name : names_.ignored) known.insert(InFile(name));
  for (const SafetensorsTensor& tensor : reader_.tensors()) {
    if (!known.contains(tensor.name)) {
      faults.push_back(absl::StrCat("'", tensor.name, "' is no tensor of this model"));
    }
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "\"", reader_.path(), "\" does not fit this model:\n  ", absl::StrJoin(faults, "\n  ")));
}

absl::Status PublishedWeights::Read(const std::vector<StateTensor>& state, Kernels& kernels) const {
  for (const StateTensor& wanted : state) {
    if (wanted.tensor.elements() == 0) continue;
    CHECK(wanted.tensor.dtype() == DType::kF32) << wanted.name;
    const PublishedTensor& published = Published(wanted.name);
    const auto read = [&](const std::string& name, std::vector<float>& out) {
      return ReadSlice(reader_, *reader_.Find(name), published.layout, wanted.held(), out);
    };
    std::vector<float> values(wanted.tensor.elements());
    LS_RETURN_IF_ERROR(read(InFile(published.name), values));
    for (const PublishedNames::Tied& tied : names_.tied) {
      if (tied.parameter != wanted.name || reader_.Find(tied.name) == nullptr) continue;
      std::vector<float> again(values.size());
      LS_RETURN_IF_ERROR(read(tied.name, again));
      if (std::memcmp(values.data(), again.data(), values.size() * sizeof(float)) != 0) {
        return absl::FailedPreconditionError(absl::StrCat(
            "\"", reader_.path(), "\" does not fit this model: '", tied.name, "' differs from '",
            InFile(published.name), "', but here they are one tensor"));
      }
    }
    kernels.CopyFromHost(values.data(), wanted.tensor);
  }
  return absl::OkStatus();
}

absl::Status WritePublishedWeights(const std::string& path, const PublishedNames& names,
                                   const std::vector<StateTensor>& state, Kernels& kernels) {
  std::vector<const StateTensor*> sources;
  std::vector<SafetensorsTensor> tensors;
  for (const PublishedTensor& published : names.tensors) {
    const auto source = std::find_if(state.begin(), state.end(), [&](const StateTensor& tensor) {
      return tensor.name == published.parameter;
    });
    CHECK(source != state.end() && source->held().IsWhole()) << published.parameter;
    sources.push_back(&*source);
    tensors.push_back({.name = published.name,
                       .dtype = "F32",
                       .shape = ShapeInFile(published, source->full_shape)});
  }
  // Hugging Face's transformers refuse a file that does not say so.
  LS_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                      SafetensorsWriter::Open(path, std::move(tensors), {{"format", "pt"}}));
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<float> values(sources[i]->tensor.elements());
    kernels.CopyToHost(sources[i]->tensor, values.data());
    if (names.tensors[i].layout == Layout::kTransposed) {
      const Shape& shape = sources[i]->full_shape;
      values = Transposed(values, shape[0], shape[1]);
    }
    LS_RETURN_IF_ERROR(
        writer.Append(names.tensors[i].name, std::as_bytes(std::span<const float>(values))));
  }
  return writer.Commit();
}

}  // namespace lockstep
