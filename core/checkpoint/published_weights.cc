#include "core/checkpoint/published_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstring>  // std::memcmp, std::memcpy
#include <filesystem>
#include <iterator>  // std::back_inserter
#include <numeric>   // std::accumulate
#include <set>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/checkpoint/finite.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Layout = PublishedTensor::Layout;

constexpr char kWeightsFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kConfigFile[] = "config.json";

// The rows of a parameter of that shape that a tensor has.
Range RowsOf(const PublishedTensor& published, const Shape& shape) {
  return published.of_parameter.count > 0 ? published.of_parameter : Range{0, shape[0]};
}

// The shape that a file should show.
std::vector<int64_t> ShapeInFile(const PublishedTensor& published, const Shape& shape) {
  std::vector<int64_t> dims = Dims(shape);
  dims[0] = RowsOf(published, shape).count;
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

// Reads elements of one tensor as fp32, best in the order of the file.
class FloatReader {
 public:
  FloatReader(const SafetensorsReader& reader, const SafetensorsTensor& tensor)
      : reader_(reader), tensor_(tensor) {}

  // Elements first, first + 1, ... in the order of the file.
  absl::Status Read(int64_t first, std::span<float> out) {
    if (tensor_.dtype == "F32") return ReadBytes(first * 4, std::as_writable_bytes(out));
    halves_.resize(out.size());
    LS_RETURN_IF_ERROR(ReadBytes(first * 2, std::as_writable_bytes(std::span(halves_))));
    const auto to_float = tensor_.dtype == "F16" ? HalfToFloat : BFloat16ToFloat;
    std::transform(halves_.begin(), halves_.end(), out.begin(), to_float);
    return absl::OkStatus();
  }

 private:
  absl::Status ReadBytes(int64_t offset, std::span<std::byte> out) {
    if (!reader_.has_checksums()) return reader_.Read(tensor_, out, offset);
    // A checksum is that of a whole block, in which many short stretches may lie: the block that
    // was read last is kept.
    while (!out.empty()) {
      const int64_t begin = offset / kChecksumBlockBytes * kChecksumBlockBytes;
      if (begin != block_begin_) {
        block_.resize(static_cast<size_t>(std::min(kChecksumBlockBytes, tensor_.bytes - begin)));
        LS_RETURN_IF_ERROR(reader_.Read(tensor_, block_, begin));
        block_begin_ = begin;
      }
      const auto in_block = static_cast<size_t>(offset - begin);
      const size_t count = std::min(out.size(), block_.size() - in_block);
      std::memcpy(out.data(), block_.data() + in_block, count);
      out = out.subspan(count);
      offset += static_cast<int64_t>(count);
    }
    return absl::OkStatus();
  }

  const SafetensorsReader& reader_;
  const SafetensorsTensor& tensor_;
  std::vector<uint16_t> halves_;
  std::vector<std::byte> block_;
  int64_t block_begin_ = -1;  // its first byte in the tensor; -1: no block was read
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

// What a rank holds of the rows that a tensor has: `in_whole` counts the tensor's elements.
std::vector<ElementRange> HeldOf(const PublishedTensor& published, const StateTensor& wanted) {
  const Range rows = RowsOf(published, wanted.full_shape);
  const int64_t row = wanted.full_shape.elements() / wanted.full_shape[0];
  const int64_t first = rows.first * row, end = first + rows.count * row;
  std::vector<ElementRange> held;
  for (const ElementRange& run : wanted.held().ElementRanges()) {
    const int64_t from = std::max(run.in_whole, first),
                  to = std::min(run.in_whole + run.elements, end);
    if (from >= to) continue;
    held.push_back({.in_whole = from - first,
                    .in_slice = run.in_slice + from - run.in_whole,
                    .elements = to - from});
  }
  return held;
}

// Reads `held` of a tensor whose rows and columns are those of `shape` into their places in `out`.
absl::Status ReadElements(const SafetensorsReader& reader, const SafetensorsTensor& tensor,
                          Layout layout, const std::vector<int64_t>& stored,
                          const std::vector<ElementRange>& held, std::span<float> out) {
  FloatReader file(reader, tensor);
  if (layout == Layout::kTransposed) {
    return ReadTransposed(file, stored[1], SplitIntoRows(held, stored[0], out));
  }
  for (const ElementRange& run : held) {
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

// The files that an index names, beside it.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::string& index) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(index));
  const Json json = ParseJson<Json>(text);
  std::set<std::string> files;
  bool is_sound = json.is_object() && json.contains("weight_map") && json["weight_map"].is_object();
  if (is_sound) {
    for (const auto& [tensor, file] : json["weight_map"].items()) {
      is_sound &= file.is_string() && file.get<std::string>().find('/') == std::string::npos;
      if (is_sound) files.insert(file.get<std::string>());
    }
  }
  if (!is_sound || files.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", index, "\" has no \"weight_map\" from tensors to files beside it"));
  }
  return std::vector<std::string>(files.begin(), files.end());
}

// The path of the weights in a folder; empty: there are none.
std::string InFolder(const std::string& folder) {
  for (const char* name : {kWeightsFile, kIndexFile}) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (PathExists(path)) return path;
  }
  return "";
}

// One file of those that weights are divided among.
struct WrittenFile {
  std::string name;
  std::vector<size_t> tensors;  // of PublishedNames::tensors
};

}  // namespace

bool PublishedWeights::IsFolder(const std::string& path) {
  return IsDirectory(path) && !InFolder(path).empty();
}

absl::StatusOr<PublishedWeights> PublishedWeights::Open(const std::string& named,
                                                        const PublishedNames& names) {
  const std::string path = IsFolder(named) ? InFolder(named) : named;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string config = (folder / kConfigFile).string();
  if (names.check_config != nullptr && PathExists(config)) {
    LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(config));
    const absl::Status fits = names.check_config(text);
    if (!fits.ok()) {
      return absl::Status(fits.code(), absl::StrCat("\"", config, "\" ", fits.message()));
    }
  }
  std::vector<SafetensorsReader> readers;
  if (path.ends_with(".json")) {
    LS_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(path));
    for (const std::string& file : files) {
      LS_ASSIGN_OR_RETURN(SafetensorsReader reader,
                          SafetensorsReader::Open((folder / file).string()));
      readers.push_back(std::move(reader));
    }
  } else {
    LS_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
    readers.push_back(std::move(reader));
  }
  return PublishedWeights(path, std::move(readers), names);
}

PublishedWeights::PublishedWeights(std::string path, std::vector<SafetensorsReader> readers,
                                   PublishedNames names)
    : path_(std::move(path)),
      readers_(std::move(readers)),
      names_(std::move(names)),
      has_prefix_(false) {
  for (const SafetensorsReader& reader : readers_) {
    for (const SafetensorsTensor& tensor : reader.tensors()) {
      has_prefix_ |= !names_.prefix.empty() && tensor.name.starts_with(names_.prefix);
    }
  }
}

std::string PublishedWeights::InFile(const std::string& name) const {
  return has_prefix_ ? names_.prefix + name : name;
}

PublishedWeights::Found PublishedWeights::Find(const std::string& name) const {
  for (const SafetensorsReader& reader : readers_) {
    const SafetensorsTensor* tensor = reader.Find(name);
    if (tensor != nullptr) return {&reader, tensor};
  }
  return {};
}

std::vector<PublishedTensor> PublishedWeights::Published(const std::string& parameter) const {
  std::vector<PublishedTensor> published;
  std::copy_if(names_.tensors.begin(), names_.tensors.end(), std::back_inserter(published),
               [&](const PublishedTensor& tensor) { return tensor.parameter == parameter; });
  CHECK(!published.empty()) << parameter << " has no published name";
  return published;
}

bool PublishedWeights::Keeps(const StateTensor& tensor) const {
  const bool is_published =
      std::any_of(names_.tensors.begin(), names_.tensors.end(),
                  [&](const PublishedTensor& it) { return it.parameter == tensor.name; });
  return !is_published && absl::StrContains(tensor.name, ".running_");
}

absl::Status PublishedWeights::Check(const std::vector<StateTensor>& state) const {
  std::set<std::string> known;
  std::vector<std::string> faults;
  const auto check = [&](const std::string& name, const PublishedTensor& published,
                         const Shape& shape) {
    known.insert(name);
    const SafetensorsTensor* tensor = Find(name).tensor;
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
    if (Keeps(wanted)) continue;
    for (const PublishedTensor& published : Published(wanted.name)) {
      const std::string name = InFile(published.name);
      if (!check(name, published, wanted.full_shape)) {
        faults.push_back(absl::StrCat("'", name, "' is missing"));
      }
      for (const PublishedNames::Tied& tied : names_.tied) {
        if (tied.parameter == wanted.name) check(tied.name, published, wanted.full_shape);
      }
    }
  }
  for (const std::string& name : names_.ignored) known.insert(InFile(name));
  for (const SafetensorsReader& reader : readers_) {
    for (const SafetensorsTensor& tensor : reader.tensors()) {
      if (!known.contains(tensor.name)) {
        faults.push_back(absl::StrCat("'", tensor.name, "' is no tensor of this model"));
      }
    }
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("\"", path_, "\" does not fit this model:\n  ", absl::StrJoin(faults, "\n  ")));
}

absl::Status PublishedWeights::Read(const std::vector<StateTensor>& state, Kernels& kernels) const {
  for (const StateTensor& wanted : state) {
    if (wanted.tensor.elements() == 0 || Keeps(wanted)) continue;
    CHECK(wanted.tensor.dtype() == DType::kF32) << wanted.name;
    std::vector<float> values(wanted.tensor.elements());
    for (const PublishedTensor& published : Published(wanted.name)) {
      const auto read = [&](const std::string& name, std::vector<float>& out) {
        const Found found = Find(name);
        return ReadElements(*found.reader, *found.tensor, published.layout,
                            ShapeInFile(published, wanted.full_shape), HeldOf(published, wanted),
                            out);
      };
      LS_RETURN_IF_ERROR(read(InFile(published.name), values));
      for (const PublishedNames::Tied& tied : names_.tied) {
        if (tied.parameter != wanted.name || Find(tied.name).tensor == nullptr) continue;
        std::vector<float> again(values.size());
        LS_RETURN_IF_ERROR(read(tied.name, again));
        if (std::memcmp(values.data(), again.data(), values.size() * sizeof(float)) != 0) {
          return absl::FailedPreconditionError(absl::StrCat(
              "\"", path_, "\" does not fit this model: '", tied.name, "' differs from '",
              InFile(published.name), "', but here they are one tensor"));
        }
      }
    }
    kernels.CopyFromHost(values.data(), wanted.tensor);
  }
  return absl::OkStatus();
}

namespace {

// Writes some of the tensors of `names` into one file.
absl::Status WriteFile(const std::string& path, const PublishedNames& names,
                       const std::vector<size_t>& numbers, const std::vector<StateTensor>& state,
                       Kernels& kernels) {
  std::vector<const StateTensor*> sources;
  std::vector<SafetensorsTensor> tensors;
  for (const size_t number : numbers) {
    const PublishedTensor& published = names.tensors[number];
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
                      SafetensorsWriter::Open(path, std::move(tensors), {{"format", "pt"}},
                                              WithChecksums::kInMetadata));
  for (size_t i = 0; i < sources.size(); ++i) {
    const PublishedTensor& published = names.tensors[numbers[i]];
    const Shape& shape = sources[i]->full_shape;
    const Range rows = RowsOf(published, shape);
    const int64_t row = shape.elements() / shape[0];
    std::vector<float> whole(sources[i]->tensor.elements());
    kernels.CopyToHost(sources[i]->tensor, whole.data());
    std::vector<float> values(whole.begin() + rows.first * row,
                              whole.begin() + (rows.first + rows.count) * row);
    if (published.layout == Layout::kTransposed) values = Transposed(values, rows.count, row);
    LS_RETURN_IF_ERROR(
        writer.Append(published.name, std::as_bytes(std::span<const float>(values))));
  }
  return writer.Commit();
}

// Checked before the first file is written: half a model helps nobody.
absl::Status CheckAllFinite(const std::vector<StateTensor>& state, Kernels& kernels) {
  for (const StateTensor& tensor : state) {
    std::vector<float> values(tensor.tensor.elements());
    kernels.CopyToHost(tensor.tensor, values.data());
    LS_RETURN_IF_ERROR(CheckFinite(tensor.name, DType::kF32,
                                   std::as_bytes(std::span<const float>(values)),
                                   "nothing is written: its training has diverged"));
  }
  return absl::OkStatus();
}

// Divides the tensors among files, in order.
std::vector<WrittenFile> DivideAmongFiles(const std::vector<int64_t>& bytes, int64_t file_bytes) {
  std::vector<WrittenFile> files;
  int64_t filled = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (files.empty() || (filled > 0 && filled + bytes[i] > file_bytes)) {
      files.emplace_back();
      filled = 0;
    }
    files.back().tensors.push_back(i);
    filled += bytes[i];
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1
                        ? kWeightsFile
                        : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, files.size());
  }
  return files;
}

}  // namespace

absl::Status WritePublishedModel(const std::string& folder, const PublishedNames& names,
                                 const std::vector<StateTensor>& state, int64_t file_bytes,
                                 Kernels& kernels) {
  std::vector<int64_t> bytes;
  for (const PublishedTensor& published : names.tensors) {
    for (const StateTensor& tensor : state) {
      if (tensor.name != published.parameter) continue;
      const Shape& shape = tensor.full_shape;
      bytes.push_back(SizeOf(DType::kF32) * RowsOf(published, shape).count *
                      (shape.elements() / shape[0]));
    }
  }
  CHECK_EQ(bytes.size(), names.tensors.size()) << "a parameter is missing, or there twice";
  LS_RETURN_IF_ERROR(CheckAllFinite(state, kernels));
  LS_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::vector<WrittenFile> files = DivideAmongFiles(bytes, file_bytes);
  Json places = Json::object();
  for (const WrittenFile& file : files) {
    LS_RETURN_IF_ERROR(
        WriteFile(absl::StrCat(folder, "/", file.name), names, file.tensors, state, kernels));
    for (const size_t number : file.tensors) places[names.tensors[number].name] = file.name;
  }
  if (files.size() > 1) {
    const Json index = {
        {"metadata", {{"total_size", std::accumulate(bytes.begin(), bytes.end(), int64_t{0})}}},
        {"weight_map", std::move(places)}};
    LS_RETURN_IF_ERROR(
        WriteFileAtomically(absl::StrCat(folder, "/", kIndexFile), index.dump(2) + "\n"));
  }
  if (names.config.empty()) return absl::OkStatus();
  return WriteFileAtomically(absl::StrCat(folder, "/", kConfigFile), names.config);
}

}  // namespace lockstep
