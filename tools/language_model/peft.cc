#include "tools/language_model/peft.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/checkpoint/finite.h"
#include "core/checkpoint/safetensors.h"
#include "core/nn/adaptable_layer.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kConfigFile[] = "/adapter_config.json";
constexpr char kWeightsFile[] = "/adapter_model.safetensors";
constexpr char kBase[] = "base_model.model.";
constexpr char kA[] = ".lora_A.weight", kB[] = ".lora_B.weight";

// What can be adapted of a layer, and the module that it is there: "transformer.h.0.attn.c_attn". A
// packed projection is several modules where its parameter is published as several tensors.
struct NamedLayer {
  AdaptableLayer* layer;
  std::string module;  // empty: it is not published
  Range outputs;       // of the layer, that the module has
  bool is_transposed;  // whether its weight lies there as [in, out]
};

std::vector<NamedLayer> NamedLayers(const Model& model) {
  std::vector<NamedLayer> named;
  for (const auto& block : model.blocks) {
    for (Module* module : block->Modules()) {
      auto* layer = dynamic_cast<AdaptableLayer*>(module);
      if (layer == nullptr) continue;
      const Range all = {0, layer->weight().shape[0]};
      const size_t before = named.size();
      for (const PublishedTensor& tensor : model.published.tensors) {
        if (tensor.parameter != layer->weight().name) continue;
        named.push_back({layer,
                         model.published.prefix + tensor.name.substr(0, tensor.name.rfind('.')),
                         tensor.of_parameter.count > 0 ? tensor.of_parameter : all,
                         tensor.layout == PublishedTensor::Layout::kTransposed});
      }
      if (named.size() == before) named.push_back({layer, "", all, false});
    }
  }
  return named;
}

std::vector<float> Values(const Tensor& tensor, Kernels& kernels) {
  const Tensor wide = kernels.Empty(tensor.shape());
  kernels.Cast(tensor, wide);
  std::vector<float> values(tensor.elements());
  kernels.CopyToHost(wide, values.data());
  return values;
}

// Those adapters of a layer that reach the outputs of a module, as one: y += (alpha / rank) B A x.
struct Joined {
  int64_t rank = 0;         // 0: there are none
  std::vector<float> a, b;  // [rank, in], [out, rank]
};

// The outputs that an adapter and a module have in common.
Range Common(const Range& a, const Range& b) {
  const int64_t first = std::max(a.first, b.first);
  const int64_t end = std::min(a.first + a.count, b.first + b.count);
  return {first, std::max<int64_t>(0, end - first)};
}

// The values of a matrix [rows, columns], as [columns, rows].
std::vector<float> Transposed(const std::vector<float>& values, int64_t columns) {
  std::vector<float> transposed;
  const int64_t rows = static_cast<int64_t>(values.size()) / columns;
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) transposed.push_back(values[row * columns + column]);
  }
  return transposed;
}

// The factors of a layer whose weight has inputs as rows: a module has all rows of one product,
// x left right, whose factors are left^T and right^T.
Joined OfInputs(const LowRank& product, Kernels& kernels) {
  const int64_t rank = product.left.shape()[1];
  std::vector<float> right = Values(product.right, kernels);
  if (product.right_is == Transpose::kNo) {
    right = Transposed(right, product.right.elements() / rank);
  }
  return {rank, Transposed(Values(product.left, kernels), rank), std::move(right)};
}

Joined Join(const NamedLayer& named, Kernels& kernels) {
  std::vector<LowRank> products;
  Joined joined;
  for (const Adapter& adapter : named.layer->adapters()) {
    for (LowRank& product : named.layer->AddedToWeight(adapter, kernels)) {
      if (Common(product.rows, named.outputs).count == 0) continue;
      if (named.layer->has_inputs_as_rows()) return OfInputs(product, kernels);
      joined.rank += product.left.shape()[1];
      products.push_back(std::move(product));
    }
  }
  joined.b.assign(named.outputs.count * joined.rank, 0);
  int64_t column = 0;
  for (const LowRank& product : products) {
    const std::vector<float> a = Values(product.right, kernels);
    const std::vector<float> b = Values(product.left, kernels);
    joined.a.insert(joined.a.end(), a.begin(), a.end());
    const int64_t rank = product.left.shape()[1];
    const Range common = Common(product.rows, named.outputs);
    for (int64_t row = common.first; row < common.first + common.count; ++row) {
      std::copy_n(b.begin() + (row - product.rows.first) * rank, rank,
                  joined.b.begin() + (row - named.outputs.first) * joined.rank + column);
    }
    column += rank;
  }
  return joined;
}

// As JSON a whole number without a point, as PEFT writes its own.
Json Number(double value) {
  const double rounded = std::round(value);
  if (std::abs(value - rounded) < 1e-6) return static_cast<int64_t>(rounded);
  return value;
}

absl::StatusOr<Json> ReadConfig(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Json config = ParseJson<Json>(text);
  if (!config.is_object()) {
    return InvalidArgument("\"", path, "\" is no JSON object");
  }
  const auto refuse = [&path](const std::string& what) {
    return InvalidArgument("\"", path, "\": ", what);
  };
  if (config.value("peft_type", Json()) != "LORA") {
    return refuse("peft_type is not \"LORA\", the one kind of adapters that is read");
  }
  if (!config.contains("lora_alpha") || !config["lora_alpha"].is_number()) {
    return refuse("lacks the number lora_alpha");
  }
  if (config.value("bias", Json("none")) != "none") {
    return refuse("bias is not \"none\": trained biases are not read");
  }
  for (const char* key : {"use_dora", "modules_to_save", "layer_replication", "lora_bias"}) {
    if (!config.contains(key)) continue;
    const Json& value = config[key];
    if (value.is_null() || value == false || (value.is_array() && value.empty())) continue;
    return refuse(absl::StrCat(key, " is ", value.dump(), ", which is not read"));
  }
  return config;
}

// alpha of a module: alpha_pattern's, by the module's name or its end, or lora_alpha.
double AlphaOf(const Json& config, const std::string& module) {
  if (config.contains("alpha_pattern") && config["alpha_pattern"].is_object()) {
    for (const auto& [key, value] : config["alpha_pattern"].items()) {
      if (value.is_number() && (module == key || module.ends_with("." + key))) return value;
    }
  }
  return config["lora_alpha"];
}

// Gives a parameter the values of a tensor in a file, in fp32.
absl::Status Fill(Parameter& parameter, const SafetensorsReader& reader,
                  const SafetensorsTensor& tensor, Kernels& kernels) {
  std::vector<std::byte> bytes(tensor.bytes);
  LS_RETURN_IF_ERROR(reader.Read(tensor, bytes));
  const DType dtype = tensor.dtype == "F32"   ? DType::kF32
                      : tensor.dtype == "F16" ? DType::kF16
                                              : DType::kBF16;
  const Tensor stored = kernels.Empty(parameter.shape, dtype);
  kernels.CopyFromHost(bytes.data(), stored);
  parameter.value = kernels.Empty(parameter.shape, DType::kF32, MemoryClass::kParameters);
  kernels.Cast(stored, parameter.value);
  return absl::OkStatus();
}

// A layer's two tensors in a file; null where it has none of the two.
struct Pair {
  const SafetensorsTensor* a = nullptr;
  const SafetensorsTensor* b = nullptr;
};

// Faults of a pair, "" for none.
std::string FaultOf(const Pair& pair, const NamedLayer& named) {
  const Shape& weight = named.layer->weight().shape;
  if (named.layer->weight().is_of_experts) return "is of an expert, whose adapters are not read";
  if (pair.a == nullptr || pair.b == nullptr) return "has one of lora_A and lora_B only";
  for (const SafetensorsTensor* tensor : {pair.a, pair.b}) {
    if (tensor->dtype != "F32" && tensor->dtype != "F16" && tensor->dtype != "BF16") {
      return absl::StrCat("is ", tensor->dtype, "; only F32, F16 and BF16 are read");
    }
  }
  const auto &a = pair.a->shape, &b = pair.b->shape;
  const bool fits = a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[0] > 0 &&
                    a[1] == weight[1] && b[0] == named.outputs.count && weight.rank() == 2;
  return fits ? ""
              : absl::StrCat("has factors [", absl::StrJoin(a, ", "), "] and [",
                             absl::StrJoin(b, ", "), "], which do not fit a layer of ", weight[-1],
                             " inputs and ", named.outputs.count, " outputs");
}

}  // namespace

absl::Status ExportPeft(const Model& model, const std::string& folder, Kernels& kernels) {
  std::vector<SafetensorsTensor> tensors;
  std::vector<std::vector<float>> values;
  Json modules = Json::array(), ranks = Json::object(), alphas = Json::object();
  int64_t rank = 0;
  double scale = 0;
  bool is_transposed = false;
  for (const NamedLayer& named : NamedLayers(model)) {
    const auto& adapters = named.layer->adapters();
    if (adapters.empty()) continue;
    if (named.module.empty()) {
      return InvalidArgument("layer '", named.layer->name(),
                             "' has no published name, so that its adapter cannot be exported");
    }
    Joined joined = Join(named, kernels);
    if (joined.rank == 0) continue;
    // A weight whose rows are inputs is published transposed, as [out, in].
    const bool by_inputs = named.layer->has_inputs_as_rows();
    const int64_t columns = named.layer->weight().shape[1];
    const int64_t in = by_inputs ? named.outputs.count : columns;
    const int64_t out = by_inputs ? columns : named.outputs.count;
    is_transposed |= named.is_transposed != by_inputs;
    tensors.push_back({.name = absl::StrCat(kBase, named.module, kA),
                       .dtype = "F32",
                       .shape = {joined.rank, in}});
    tensors.push_back({.name = absl::StrCat(kBase, named.module, kB),
                       .dtype = "F32",
                       .shape = {out, joined.rank}});
    values.push_back(std::move(joined.a));
    values.push_back(std::move(joined.b));
    if (rank == 0) rank = joined.rank;
    scale = adapters.front().scale();
    const double alpha = scale * static_cast<double>(joined.rank);
    if (joined.rank != rank) {
      ranks[named.module] = joined.rank;
      alphas[named.module] = Number(alpha);
    }
    modules.push_back(named.module);
  }
  if (tensors.empty()) {
    return absl::InvalidArgumentError("the model has no adapters; train some with [lora]");
  }
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", nullptr},
                       {"r", rank},
                       {"lora_alpha", Number(scale * static_cast<double>(rank))},
                       {"lora_dropout", 0.0},
                       {"target_modules", modules},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas},
                       // The scale of a stabilised rank is in lora_alpha.
                       {"use_rslora", false},
                       {"fan_in_fan_out", is_transposed},
                       {"bias", "none"},
                       {"modules_to_save", nullptr},
                       {"inference_mode", true}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    LS_RETURN_IF_ERROR(CheckFinite(tensors[i].name, DType::kF32,
                                   std::as_bytes(std::span<const float>(values[i])),
                                   "nothing is written: its training has diverged"));
  }
  LS_RETURN_IF_ERROR(MakeDirectories(folder));
  LS_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                      SafetensorsWriter::Open(folder + kWeightsFile, tensors, {{"format", "pt"}},
                                              WithChecksums::kInMetadata));
  for (size_t i = 0; i < tensors.size(); ++i) {
    LS_RETURN_IF_ERROR(
        writer.Append(tensors[i].name, std::as_bytes(std::span<const float>(values[i]))));
  }
  LS_RETURN_IF_ERROR(writer.Commit());
  return WriteFileAtomically(folder + kConfigFile, config.dump(2) + "\n");
}

absl::Status AddPeftAdapters(Model& model, const std::string& folder, Kernels& kernels) {
  LS_ASSIGN_OR_RETURN(const Json config, ReadConfig(folder + kConfigFile));
  LS_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                      SafetensorsReader::Open(folder + kWeightsFile));
  std::vector<std::pair<NamedLayer, Pair>> found;
  std::vector<std::string> faults;
  size_t known = 0;
  for (const NamedLayer& named : NamedLayers(model)) {
    const Pair pair = {.a = reader.Find(absl::StrCat(kBase, named.module, kA)),
                       .b = reader.Find(absl::StrCat(kBase, named.module, kB))};
    if (pair.a == nullptr && pair.b == nullptr) continue;
    known += (pair.a != nullptr ? 1 : 0) + (pair.b != nullptr ? 1 : 0);
    const std::string fault = FaultOf(pair, named);
    if (!fault.empty()) faults.push_back(absl::StrCat("'", named.module, "' ", fault));
    found.emplace_back(named, pair);
  }
  if (known < reader.tensors().size()) {
    faults.push_back(absl::StrCat(reader.tensors().size() - known,
                                  " of its tensors are no adapters of this model's layers"));
  }
  if (found.empty()) faults.push_back("there is no adapter in it");
  if (!faults.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "\"", reader.path(), "\" does not fit this model:\n  ", absl::StrJoin(faults, "\n  ")));
  }
  const bool stabilised = config.value("use_rslora", Json(false)) == true;
  for (const auto& [named, pair] : found) {
    const auto rank = static_cast<double>(pair.a->shape[0]);
    const double scale = AlphaOf(config, named.module) / (stabilised ? std::sqrt(rank) : rank);
    for (const AdaptableLayer::Target& target : named.layer->Targets()) {
      if (target.outputs != named.outputs) continue;
      named.layer->AddAdapter(target,
                              {.rank = pair.a->shape[0], .scale = static_cast<float>(scale)});
      break;
    }
    const Adapter& adapter = named.layer->adapters().back();
    LS_RETURN_IF_ERROR(Fill(adapter.a(), reader, *pair.a, kernels));
    LS_RETURN_IF_ERROR(Fill(adapter.b(), reader, *pair.b, kernels));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
