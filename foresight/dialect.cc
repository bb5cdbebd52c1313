#include "foresight/dialect.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/config_reader.h"
#include "foresight/kernel_tensors.h"
#include "foresight/lockstep_dialect.h"

namespace lockstep {
namespace {

// Places of values: first those of the tensors, four each, then those of all kernels, then fitted
// numbers in their order, then what a rule defines.
enum Field { kBytes, kRows, kColumns, kElements, kFields };
constexpr int kMostTensors = 10;
enum Common {
  kAll = kFields * kMostTensors,
  kTp,
  kSequenceRanks,
  kTokenLeaves,
  kVocabulary,
  kRecomputesBlocks,
  kRecomputesAttention,
  kFirstFitted
};
constexpr std::pair<absl::string_view, int> kCommonNames[] = {
    {"all", kAll},
    {"tp", kTp},
    {"sequence_ranks", kSequenceRanks},
    {"token_leaves", kTokenLeaves},
    {"vocabulary", kVocabulary},
    {"recomputes_blocks", kRecomputesBlocks},
    {"recomputes_attention", kRecomputesAttention}};

struct LaunchKind {
  absl::string_view name;
  DeviceKernel::Kind kind;
  size_t least, most;  // arguments
};
constexpr LaunchKind kLaunchKinds[] = {{"product", DeviceKernel::Kind::kProduct, 3, 4},
                                       {"single_product", DeviceKernel::Kind::kSingleProduct, 3, 4},
                                       {"pass", DeviceKernel::Kind::kPass, 1, 1},
                                       {"maps", DeviceKernel::Kind::kMaps, 1, 1}};

// "a, max(b, c)" to "a" and "max(b, c)".
std::vector<absl::string_view> SplitArguments(absl::string_view text) {
  std::vector<absl::string_view> arguments;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(';
    depth -= text[i] == ')';
    if (text[i] != ',' || depth > 0) continue;
    arguments.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  arguments.push_back(text.substr(begin));
  return arguments;
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

}  // namespace

class DialectReader {
 public:
  // Rules know the fitted numbers of all files, so these come first.
  static absl::StatusOr<Dialect> Read(const std::string& path) {
    std::vector<Config> files;  // each behind the one that it is based on
    for (std::string next = path; !next.empty();) {
      LS_ASSIGN_OR_RETURN(Config config, Config::FromFile(next));
      std::string based_on;
      ConfigReader(config.Table("")).Read("based_on", &based_on);
      files.insert(files.begin(), std::move(config));
      if (files.size() > 4) return InvalidArgument(path, ": based_on goes round in a circle");
      next = based_on.empty() ? "" : FolderOf(path) + based_on + ".toml";
    }
    return Read(files);
  }

  static absl::StatusOr<Dialect> Read(const std::vector<Config>& files) {
    Dialect dialect;
    absl::Status status;
    for (const Config& file : files) {
      ConfigReader fitted(file.Table("fitted"));
      for (const std::string& key : fitted.Keys()) {
        fitted.Read(key, &dialect.fitted_[key], {.at_least = 0});
      }
      status = Both(status, fitted.Finish());
    }
    for (const Config& file : files) status = Both(status, ReadFile(file, dialect));
    LS_RETURN_IF_ERROR(status);
    return dialect;
  }

 private:
  static absl::Status ReadFile(const Config& config, Dialect& dialect) {
    ConfigReader whole(config.Table(""));
    std::string based_on;
    whole.Read("based_on", &based_on);
    whole.Table("fitted");
    whole.Require("name", &dialect.name_);
    absl::Status status;
    if (whole.Has("parameter_bytes")) {
      ConfigReader bytes(whole.Table("parameter_bytes"));
      bytes.Read("value", &dialect.parameter_bytes_.value, {.at_least = 0});
      bytes.Read("gradient", &dialect.parameter_bytes_.gradient, {.at_least = 0});
      bytes.Read("optimizer", &dialect.parameter_bytes_.optimizer, {.at_least = 0});
      status = bytes.Finish();
    }
    whole.Read("overlaps", &dialect.overlaps_);
    whole.Read("divides_messages", &dialect.divides_messages_);
    whole.Read("merges_token_leaves", &dialect.merges_token_leaves_);
    whole.Read("row_settings", &dialect.row_settings_);
    whole.Read("options", &dialect.options_);
    for (const std::string& option : dialect.options_) {
      if (!absl::StrContains(option, '=')) whole.AddProblem("options", option + " is no key=value");
    }
    std::vector<std::string> free_calls;
    whole.Read("free_calls", &free_calls);
    dialect.free_calls_.insert(free_calls.begin(), free_calls.end());
    ConfigReader kernels(whole.Table("kernels"));
    for (const std::string& kernel : kernels.Keys()) {
      status = Both(status, ReadKernel(kernels, kernel, dialect));
    }
    return Both(Both(status, kernels.Finish()), whole.Finish());
  }

  // [kernels.Linear] is one rule; [kernels.Linear.0], [kernels.Linear.1], ... are several.
  static absl::Status ReadKernel(ConfigReader& kernels, const std::string& kernel,
                                 Dialect& dialect) {
    const ConfigTable table = kernels.Table(kernel);
    if (kernel != "default" && TensorNames(kernel).empty()) {
      kernels.AddProblem(kernel, "is no kernel of core/kernels/kernels.h");
      return absl::OkStatus();
    }
    std::vector<Dialect::Rule>& rules = dialect.rules_[kernel == "default" ? "" : kernel];
    rules.clear();
    ConfigReader reader(table);
    absl::Status status;
    if (!reader.Has("0")) {
      status = ReadRule(reader, kernel, dialect, rules.emplace_back());
    }
    for (int i = 0; reader.Has(absl::StrCat(i)); ++i) {
      ConfigReader rule(reader.Table(absl::StrCat(i)));
      status = Both(status, ReadRule(rule, kernel, dialect, rules.emplace_back()));
      status = Both(status, rule.Finish());
    }
    return Both(status, reader.Finish());
  }

  static absl::Status ReadRule(ConfigReader& reader, const std::string& kernel,
                               const Dialect& dialect, Dialect::Rule& rule) {
    std::vector<std::string> lets;
    const int first_let = kFirstFitted + static_cast<int>(dialect.fitted_.size());
    const auto slot_of = [&](absl::string_view name) -> absl::StatusOr<int> {
      for (const auto& [common, slot] : kCommonNames) {
        if (name == common) return slot;
      }
      const std::vector<absl::string_view> tensors = TensorNames(kernel);
      for (size_t i = 0; i < tensors.size(); ++i) {
        absl::string_view field = name;
        if (!absl::ConsumePrefix(&field, tensors[i])) continue;
        const int slot = static_cast<int>(i) * kFields;
        if (field.empty()) return slot + kBytes;
        if (field == ".rows") return slot + kRows;
        if (field == ".columns") return slot + kColumns;
        if (field == ".elements") return slot + kElements;
      }
      const auto let = std::find(lets.begin(), lets.end(), name);
      if (let != lets.end()) return first_let + static_cast<int>(let - lets.begin());
      const auto found = dialect.fitted_.find(std::string(name));
      if (found != dialect.fitted_.end()) {
        return kFirstFitted + static_cast<int>(std::distance(dialect.fitted_.begin(), found));
      }
      return InvalidArgument("'", name, "' is neither a tensor of the kernel (",
                             absl::StrJoin(tensors, ", "),
                             "), nor one of its .rows, .columns or .elements, nor a fitted number");
    };
    const auto parse = [&](const std::string& key, absl::string_view text, Expression* to) {
      absl::StatusOr<Expression> parsed = Expression::Parse(text, slot_of);
      if (parsed.ok()) {
        *to = *std::move(parsed);
      } else {
        reader.AddProblem(key, std::string(parsed.status().message()));
      }
    };
    const auto read = [&](const std::string& key, Expression* to) {
      std::string text;
      reader.Read(key, &text);
      if (!text.empty()) parse(key, text, to);
      return !text.empty();
    };
    // Definitions are read in an order in which each knows those that it uses.
    ConfigReader definitions(reader.Table("let"));
    std::vector<std::string> left = definitions.Keys();
    for (bool goes_on = true; goes_on && !left.empty();) {
      goes_on = false;
      for (size_t i = 0; i < left.size(); ++i) {
        std::string text;
        definitions.Read(left[i], &text);
        absl::StatusOr<Expression> value = Expression::Parse(text, slot_of);
        if (!value.ok()) continue;
        rule.lets.emplace_back(first_let + static_cast<int>(lets.size()), *std::move(value));
        lets.push_back(left[i]);
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
        goes_on = true;
        break;
      }
    }
    for (const std::string& name : left) {
      std::string text;
      definitions.Read(name, &text);
      Expression unused;
      parse("let", text, &unused);
    }
    rule.slots = first_let + static_cast<int>(lets.size());
    rule.has_condition = read("when", &rule.when);
    read("host", &rule.host);
    read("keeps", &rule.keeps);
    reader.Read("apart", &rule.apart);
    std::vector<std::string> launches;
    reader.Read("does", &launches);
    for (const std::string& text : launches) {
      absl::string_view arguments = text;
      const auto* kind = std::find_if(
          std::begin(kLaunchKinds), std::end(kLaunchKinds), [&](const LaunchKind& one) {
            absl::string_view rest = text;
            if (!absl::ConsumePrefix(&rest, one.name) || !absl::ConsumePrefix(&rest, "(") ||
                !absl::ConsumeSuffix(&rest, ")")) {
              return false;
            }
            arguments = rest;
            return true;
          });
      const std::vector<absl::string_view> parts = SplitArguments(arguments);
      if (kind == std::end(kLaunchKinds) || parts.size() < kind->least ||
          parts.size() > kind->most) {
        reader.AddProblem("does", absl::StrCat("'", text,
                                               "' is none of product(m, n, k), product(m, n, k, "
                                               "batch), single_product(...), pass(bytes), "
                                               "maps(bytes)"));
        continue;
      }
      Dialect::Launch launch = {.kind = kind->kind, .arguments = {}};
      for (const absl::string_view part : parts) {
        parse("does", part, &launch.arguments.emplace_back());
      }
      rule.launches.push_back(std::move(launch));
    }
    return definitions.Finish();
  }
};

absl::StatusOr<Dialect> Dialect::Read(const std::string& path) { return DialectReader::Read(path); }

absl::StatusOr<Dialect> Dialect::Lockstep() {
  LS_ASSIGN_OR_RETURN(const Config config, Config::FromString(kLockstepDialect, "lockstep.toml"));
  return DialectReader::Read({config});
}

absl::Status Dialect::CheckOption(absl::string_view assignment) const {
  const absl::string_view key = assignment.substr(0, assignment.find('='));
  std::vector<absl::string_view> values;
  for (absl::string_view option : options_) {
    if (option == assignment) return absl::OkStatus();
    if (absl::ConsumePrefix(&option, key) && absl::ConsumePrefix(&option, "=")) {
      values.push_back(option);
    }
  }
  if (values.empty()) return absl::OkStatus();
  return InvalidArgument(name_, " has no ", assignment, "; it has ", absl::StrJoin(values, ", "));
}

double Dialect::Fitted(const std::string& name) const {
  const auto found = fitted_.find(name);
  return found == fitted_.end() ? 0 : found->second;
}

absl::StatusOr<KernelCost> Dialect::CostOf(const KernelCall& call, const DialectContext& context,
                                           int64_t repeats) const {
  auto found = rules_.find(WithoutLeaves(call.kernel));
  if (found == rules_.end()) found = rules_.find("");
  if (found == rules_.end()) {
    return InvalidArgument("dialect ", name_, " has no rule for kernel ", call.kernel,
                           "; add [kernels.", WithoutLeaves(call.kernel), "] to its file");
  }
  int slots = kFirstFitted;
  for (const Rule& rule : found->second) slots = std::max(slots, rule.slots);
  std::vector<double> values(slots, 0.0);
  // Rules name the tensors of the kernel without leaves.
  const std::vector<absl::string_view> names = TensorNames(WithoutLeaves(call.kernel));
  for (const NamedTensor& tensor : TensorsOf(call, repeats)) {
    const auto at = std::find(names.begin(), names.end(), tensor.name) - names.begin();
    if (at == std::ssize(names)) continue;
    double* const fields = &values[at * kFields];
    fields[kBytes] = tensor.bytes;
    fields[kRows] = tensor.rows;
    fields[kColumns] = tensor.columns;
    fields[kElements] = tensor.elements;
    values[kAll] += tensor.bytes;
  }
  values[kTp] = context.tp;
  values[kSequenceRanks] = context.sequence_ranks;
  values[kTokenLeaves] = context.token_leaves;
  values[kVocabulary] = context.vocabulary;
  values[kRecomputesBlocks] = context.recomputed.contains("LayerNorm");
  values[kRecomputesAttention] = context.recomputed.contains("AttentionForward");
  KernelCost cost;
  for (const Rule& rule : found->second) {
    int slot = kFirstFitted;
    for (const auto& [name, value] : fitted_) values[slot++] = value;
    for (const auto& [let, value] : rule.lets) values[let] = value.Evaluate(values);
    if (rule.has_condition && rule.when.Evaluate(values) == 0) continue;
    const DType dtype = call.tensors.empty() ? DType::kF32 : call.tensors[0].dtype;
    for (const Launch& launch : rule.launches) {
      std::array<double, 4> arguments = {0, 0, 0, 1};
      for (size_t i = 0; i < launch.arguments.size(); ++i) {
        arguments[i] = launch.arguments[i].Evaluate(values);
      }
      DeviceKernel kernel;
      kernel.kind = launch.kind;
      kernel.dtype = dtype;
      if (launch.arguments.size() == 1) {
        kernel.bytes = arguments[0];
      } else {
        kernel.m = arguments[0];
        kernel.n = arguments[1];
        kernel.k = arguments[2];
        kernel.batch = arguments[3];
      }
      // What is not computed takes no launch.
      if (kernel.bytes > 0 || kernel.m * kernel.n * kernel.k * kernel.batch > 0) {
        cost.kernels.push_back(kernel);
      }
    }
    cost.host_seconds = rule.host.Evaluate(values);
    cost.kept_bytes = rule.keeps.Evaluate(values);
    cost.apart = rule.apart;
    return cost;
  }
  return InvalidArgument("dialect ", name_, ": no rule of kernel ", call.kernel,
                         " applies to this call; add one without `when`");
}

}  // namespace lockstep
