#include "tools/plan/vtrain.h"

#include <utility>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/config_reader.h"
#include "foresight/shipped.h"
#include "tools/plan/measured_rows.h"

namespace lockstep {

absl::StatusOr<VtrainRows> ReadVtrainRows(const Cluster& cluster) {
  VtrainRows rows;
  LS_ASSIGN_OR_RETURN(rows.one_node_dialect,
                      Dialect::Read(ShippedPath("foresight/dialects", "vtrain_profile")));
  LS_ASSIGN_OR_RETURN(rows.many_nodes_dialect,
                      Dialect::Read(ShippedPath("foresight/dialects", "megatron_2021")));
  LS_ASSIGN_OR_RETURN(std::vector<MeasuredRow> one,
                      ReadMeasuredRows("tools/plan/measured/vtrain_single.csv"));
  LS_ASSIGN_OR_RETURN(std::vector<MeasuredRow> many,
                      ReadMeasuredRows("tools/plan/measured/vtrain_multi.csv"));
  LS_ASSIGN_OR_RETURN(rows.one_node, RecordRows(std::move(one), rows.one_node_dialect, cluster));
  LS_ASSIGN_OR_RETURN(rows.many_nodes,
                      RecordRows(std::move(many), rows.many_nodes_dialect, cluster));
  return rows;
}

std::vector<FitRows> VtrainRows::ToFit() const {
  std::vector<FitRows> files(2);
  files[0].recorded = &one_node;
  files[0].dialect = one_node_dialect;
  files[1].recorded = &many_nodes;
  files[1].dialect = many_nodes_dialect;
  files[1].weight = 3.5;  // of fewer rows
  return files;
}

const std::vector<FitParameter>& VtrainParameters() {
  static const auto* const parameters = new std::vector<FitParameter>{
      {"product_efficiency", 0.4, 1},
      {"wave_seconds", 0, 4e-6},
      {"pass_efficiency", 0.3, 1},
      {"map_efficiency", 0.25, 1},
      {"single_product_efficiency", 0.25, 1},
      {"adapter_efficiency", 0.1, 1},
      {"adapter_strided_efficiency", 0.1, 1},
      {"host_forward", 2e-6, 1.2e-4},
      {"host_backward", 2e-6, 1e-4},
      {"host_unfused", 0, 2e-3},
      {"visible_gaps", 0, 1},
      {"skew", 0, 1.5e-3},
      {"steady_skew", 0, 1.5e-3},
      {"single_loss_bytes", 0, 80},
      {"loss_bytes", 0, 60},
  };
  return *parameters;
}

absl::StatusOr<std::array<std::map<std::string, double>, 2>> VtrainHalves() {
  LS_ASSIGN_OR_RETURN(const Config config, Config::FromFile("tools/plan/measured/halves.toml"));
  std::array<std::map<std::string, double>, 2> halves;
  const char* const tables[] = {"fitted_to_odd_rows", "fitted_to_even_rows"};
  for (size_t half = 0; half < halves.size(); ++half) {
    ConfigReader reader(config.Table(tables[half]));
    for (const FitParameter& parameter : VtrainParameters()) {
      reader.Require(parameter.name, &halves[half][parameter.name],
                     {.at_least = parameter.low, .at_most = parameter.high});
    }
    LS_RETURN_IF_ERROR(reader.Finish());
  }
  return halves;
}

}  // namespace lockstep
