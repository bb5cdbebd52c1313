#include "foresight/cluster.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/config_reader.h"
#include "core/config/config_toml.h"
#include "foresight/quantity.h"

namespace lockstep {
namespace {

// Reads a number with a unit, which is above zero where it must be there.
class QuantityReader {
 public:
  explicit QuantityReader(ConfigReader& reader) : reader_(reader) {}

  void Require(const std::string& key, Dimension quantity, double* value) {
    std::string text;
    reader_.Require(key, &text);
    if (!Parse(key, text, quantity, value)) return;
    if (*value <= 0) reader_.AddProblem(key, "must be above zero");
  }
  void Read(const std::string& key, Dimension quantity, double* value) {
    std::string text;
    reader_.Read(key, &text);
    Parse(key, text, quantity, value);
  }

 private:
  bool Parse(const std::string& key, const std::string& text, Dimension quantity, double* value) {
    if (text.empty()) return false;
    const absl::StatusOr<double> parsed = ParseQuantity(text, quantity);
    if (parsed.ok()) {
      *value = *parsed;
    } else {
      reader_.AddProblem(key, std::string(parsed.status().message()));
    }
    return parsed.ok();
  }

  ConfigReader& reader_;
};

absl::Status ReadDevice(ConfigReader reader, Cluster::Device& device) {
  QuantityReader quantities(reader);
  quantities.Require("memory", Dimension::kBytes, &device.memory);
  quantities.Require("bandwidth", Dimension::kBytesPerSecond, &device.bandwidth);
  quantities.Read("launch", Dimension::kSeconds, &device.launch);
  reader.Require("processors", &device.processors, {.at_least = 1});
  ConfigReader peaks(reader.Table("peak"));
  QuantityReader rates(peaks);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    if (peaks.Has(Name(dtype))) {
      rates.Require(Name(dtype), Dimension::kFlopsPerSecond, &device.peak[dtype]);
    }
  }
  if (device.peak.empty()) peaks.AddProblem("f32", "no rate of products is given");
  return Both(peaks.Finish(), reader.Finish());
}

absl::Status ReadNode(ConfigReader reader, Cluster::Node& node) {
  QuantityReader quantities(reader);
  reader.Require("devices", &node.devices, {.at_least = 1});
  quantities.Require("link_bandwidth", Dimension::kBytesPerSecond, &node.link_bandwidth);
  quantities.Read("link_latency", Dimension::kSeconds, &node.link_latency);
  return reader.Finish();
}

absl::Status ReadNetwork(ConfigReader reader, Cluster::Network& network) {
  QuantityReader quantities(reader);
  reader.Read("nodes", &network.nodes, {.at_least = 1});
  if (network.nodes > 1) {
    quantities.Require("bandwidth", Dimension::kBytesPerSecond, &network.bandwidth);
  } else {
    quantities.Read("bandwidth", Dimension::kBytesPerSecond, &network.bandwidth);
  }
  reader.Read("adapters", &network.adapters, {.at_least = 0});
  quantities.Read("latency", Dimension::kSeconds, &network.latency);
  reader.Read("oversubscription", &network.oversubscription, {.at_least = 1, .at_most = 1e6});
  reader.Read("nodes_a_switch", &network.nodes_a_switch, {.at_least = 0});
  return reader.Finish();
}

// What counts devices counts in int.
absl::Status CheckDevices(const std::string& path, const Cluster& cluster) {
  const int64_t devices = int64_t{cluster.node.devices} * cluster.network.nodes;
  if (devices <= std::numeric_limits<int>::max()) return absl::OkStatus();
  return InvalidArgument(path, ": node.devices times network.nodes are ", devices,
                         " devices; at most ", std::numeric_limits<int>::max(),
                         " can be planned for");
}

absl::Status ReadMeasurements(ConfigReader reader, Measurements& measured) {
  const auto read = [&](const std::string& key, auto parse, auto& rows) {
    std::vector<std::string> lines;
    reader.Read(key, &lines);
    for (const std::string& line : lines) {
      auto row = parse(line);
      if (row.ok()) {
        rows.push_back(*std::move(row));
      } else {
        return reader.AddProblem(key, std::string(row.status().message()));
      }
    }
  };
  read("kernels", ParseMeasuredKernel, measured.kernels);
  read("calls", ParseMeasuredCall, measured.calls);
  read("waits", ParseMeasuredWait, measured.waits);
  return reader.Finish();
}

}  // namespace

absl::StatusOr<Cluster> ReadCluster(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const Config config, Config::FromFile(path));
  Cluster cluster;
  ConfigReader whole(config.Table(""));
  whole.Require("name", &cluster.name);
  absl::Status status = ReadDevice(ConfigReader(whole.Table("device")), cluster.device);
  status = Both(status, ReadNode(ConfigReader(whole.Table("node")), cluster.node));
  status = Both(status, ReadNetwork(ConfigReader(whole.Table("network")), cluster.network));
  ConfigReader fitted(whole.Table("fitted"));
  for (const std::string& key : fitted.Keys()) {
    fitted.Read(key, &cluster.fitted[key], {.at_least = 0, .at_most = kLargestQuantity});
  }
  status = Both(status, CheckDevices(path, cluster));
  status = Both(status, ReadMeasurements(ConfigReader(whole.Table("measured")), cluster.measured));
  LS_RETURN_IF_ERROR(Both(Both(status, fitted.Finish()), whole.Finish()));
  return cluster;
}

std::string ToToml(const Cluster& cluster) {
  const auto quantity = [](const std::string& key, double value, const char* unit) {
    return absl::StrFormat("%s = \"%.4g %s\"\n", key, value, unit);
  };
  const Cluster::Device& device = cluster.device;
  std::string text = absl::StrCat("name = ", FormatTomlValue({.data = cluster.name, .origin = ""}),
                                  "\n\n[device]\n", quantity("memory", device.memory, "B"),
                                  quantity("bandwidth", device.bandwidth, "B/s"));
  for (const auto& [dtype, rate] : device.peak) {
    text += quantity(absl::StrCat("peak.", Name(dtype)), rate, "FLOP/s");
  }
  absl::StrAppend(&text, "processors = ", device.processors, "\n",
                  quantity("launch", device.launch, "s"),
                  "\n[node]\ndevices = ", cluster.node.devices, "\n",
                  quantity("link_bandwidth", cluster.node.link_bandwidth, "B/s"),
                  quantity("link_latency", cluster.node.link_latency, "s"));
  if (const Cluster::Network& network = cluster.network; network.nodes > 1) {
    absl::StrAppend(&text, "\n[network]\nnodes = ", network.nodes, "\n",
                    quantity("bandwidth", network.bandwidth, "B/s"),
                    "adapters = ", network.adapters, "\n",
                    quantity("latency", network.latency, "s"),
                    absl::StrFormat("oversubscription = %.4g\n", network.oversubscription),
                    "nodes_a_switch = ", network.nodes_a_switch, "\n");
  }
  if (!cluster.fitted.empty()) text += "\n[fitted]\n";
  for (const auto& [name, value] : cluster.fitted) {
    absl::StrAppendFormat(&text, "%s = %.6g\n", FormatTomlKey(name), value);
  }
  if (cluster.measured.empty()) return text;
  const auto rows = [&text](const char* key, const auto& measured) {
    absl::StrAppend(&text, key, " = [\n");
    for (const auto& row : measured) {
      absl::StrAppend(&text, "  ", FormatTomlValue({.data = ToText(row), .origin = ""}), ",\n");
    }
    text += "]\n";
  };
  text += "\n[measured]\n";
  rows("kernels", cluster.measured.kernels);
  rows("calls", cluster.measured.calls);
  rows("waits", cluster.measured.waits);
  return text;
}

}  // namespace lockstep
