#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "tools/plan/held_to.h"

namespace lockstep {

// A fitted number of a cluster or of dialects, which all have the same value where several have it,
// and its bounds.
struct FitParameter {
  std::string name;
  double low = 0, high = 1;
};

// Rows that were measured with one framework.
struct FitRows {
  const RecordedRows* recorded = nullptr;
  Dialect dialect;
  double weight = 1;                // of each row's error
  std::vector<size_t> chosen = {};  // rows to fit to
};

struct FitOptions {
  // Errors up to here count by their square, larger ones linearly: a row that nothing explains does
  // not bend the rest.
  double scale = 0.01;
  int rounds = 40;  // at most
};

struct Fit {
  Cluster cluster;
  std::vector<Dialect> dialects;  // by FitRows
  double cost = 0;
  int rounds = 0;
};

// Finds the values of `parameters` with the least sum over rows of 2 scale^2 (sqrt(1 + (w e /
// scale)^2) - 1), e = log(predicted / measured), from where cluster and dialects have them: by
// Levenberg and Marquardt's method with each row weighted anew in each round (soft L1), projected
// on the bounds. Deterministic. InvalidArgument for a parameter that neither cluster nor dialects
// have, or whose bounds are no range.
absl::StatusOr<Fit> FitTo(const std::vector<FitRows>& rows, const Cluster& cluster,
                          const std::vector<FitParameter>& parameters,
                          const FitOptions& options = {});

// Chooses row `first` of each file and every `stride`-th one behind it.
void ChooseRows(size_t first, size_t stride, std::vector<FitRows>& rows);

// Judges the rows of each file that were not fitted to; where all were, these.
absl::StatusOr<std::vector<Judgement>> JudgeFit(const Fit& fit, const std::vector<FitRows>& rows);

// Sets a number wherever it is; false where it is nowhere.
bool SetFitted(const std::string& name, double value, Cluster& cluster,
               std::vector<Dialect>& dialects);

}  // namespace lockstep
