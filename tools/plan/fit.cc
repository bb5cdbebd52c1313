#include "tools/plan/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "core/base/status.h"
#include "foresight/network_time.h"

namespace lockstep {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;  // by column

// Solves a x = b for a symmetric, positive definite a, by Cholesky's decomposition.
Vector Solve(Matrix a, Vector b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      a[i][j] = i == j ? std::sqrt(std::max(sum, 1e-300)) : sum / a[j][j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

double ValueOf(const std::string& name, const Cluster& cluster,
               const std::vector<Dialect>& dialects) {
  const auto found = cluster.fitted.find(name);
  if (found != cluster.fitted.end()) return found->second;
  for (const Dialect& dialect : dialects) {
    if (dialect.fitted().contains(name)) return dialect.Fitted(name);
  }
  return NAN;
}

class Fitting {
 public:
  Fitting(const std::vector<FitRows>& rows, const Cluster& cluster,
          const std::vector<FitParameter>& parameters, const FitOptions& options)
      : rows_(rows), cluster_(cluster), parameters_(parameters), options_(options) {
    for (const FitRows& one : rows) {
      dialects_.push_back(one.dialect);
    }
  }

  absl::StatusOr<Fit> Run() {
    Vector at(parameters_.size());
    for (size_t i = 0; i < at.size(); ++i) {
      const FitParameter& parameter = parameters_[i];
      const double value = ValueOf(parameter.name, cluster_, dialects_);
      if (std::isnan(value)) {
        return InvalidArgument("neither cluster nor dialects have a fitted number '",
                               parameter.name, "'");
      }
      if (!(parameter.low < parameter.high)) {
        return InvalidArgument("fitted number '", parameter.name, "': bounds ", parameter.low,
                               " and ", parameter.high, " are no range");
      }
      at[i] = std::clamp((value - parameter.low) / (parameter.high - parameter.low), 0.0, 1.0);
    }
    Fit fit;
    LS_ASSIGN_OR_RETURN(Vector errors, ErrorsAt(at));
    fit.cost = Cost(errors);
    double damping = 1e-3;
    int useless = 0;
    for (fit.rounds = 0; fit.rounds < options_.rounds && useless < 3; ++fit.rounds) {
      LS_ASSIGN_OR_RETURN(const Matrix slopes, SlopesAt(at, errors));
      // Soft L1 by weights: those of rows with large errors fall.
      Vector weights;
      for (const double error : errors)
        weights.push_back(1 / std::hypot(1, error / options_.scale));
      const auto dot = [&](const Vector& a, const Vector& b) {
        double sum = 0;
        for (size_t i = 0; i < a.size(); ++i) sum += weights[i] * a[i] * b[i];
        return sum;
      };
      Matrix normal(at.size(), Vector(at.size()));
      Vector gradient;
      for (size_t i = 0; i < at.size(); ++i) {
        for (size_t j = 0; j < at.size(); ++j) normal[i][j] = dot(slopes[i], slopes[j]);
        gradient.push_back(dot(slopes[i], errors));
      }
      bool is_better = false;
      for (int attempt = 0; attempt < 8 && !is_better; ++attempt) {
        const Vector next = Step(at, normal, gradient, damping);
        LS_ASSIGN_OR_RETURN(const Vector next_errors, ErrorsAt(next));
        const double cost = Cost(next_errors);
        is_better = cost < fit.cost;
        damping = std::clamp(damping * (is_better ? 0.2 : 5), 1e-9, 1e6);
        if (!is_better) continue;
        useless = fit.cost - cost < 1e-5 * fit.cost ? useless + 1 : 0;
        at = next;
        errors = next_errors;
        fit.cost = cost;
      }
      if (!is_better) break;
    }
    Set(at);
    fit.cluster = cluster_;
    fit.dialects = dialects_;
    return fit;
  }

 private:
  void Set(const Vector& at) {
    for (size_t i = 0; i < at.size(); ++i) {
      const auto& [name, low, high] = parameters_[i];
      SetFitted(name, low + at[i] * (high - low), cluster_, dialects_);
    }
  }

  // What a step to the minimum of the quadratic would be, without what is held at its bound.
  Vector Step(const Vector& at, const Matrix& normal, const Vector& gradient,
              double damping) const {
    std::vector<size_t> open;
    for (size_t i = 0; i < at.size(); ++i) {
      const bool is_held = (at[i] <= 0 && gradient[i] > 0) || (at[i] >= 1 && gradient[i] < 0);
      if (!is_held && normal[i][i] > 0) open.push_back(i);
    }
    Matrix reduced;
    Vector right;
    for (const size_t i : open) {
      Vector& column = reduced.emplace_back();
      for (const size_t j : open) column.push_back(normal[i][j] * (i == j ? 1 + damping : 1));
      right.push_back(-gradient[i]);
    }
    const Vector step = Solve(std::move(reduced), std::move(right));
    Vector next = at;
    for (size_t i = 0; i < open.size(); ++i) {
      // A quarter of the range at most: the time of a step has kinks.
      next[open[i]] = std::clamp(at[open[i]] + std::clamp(step[i], -0.25, 0.25), 0.0, 1.0);
    }
    return next;
  }

  absl::StatusOr<Vector> ErrorsAt(const Vector& at) {
    Set(at);
    KeepNetwork();
    Vector errors;
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (const size_t row : rows_[i].chosen) {
        LS_ASSIGN_OR_RETURN(const StepEstimate estimate, rows_[i].recorded->steps[row].Estimate(
                                                             dialects_[i], cluster_, *network_));
        errors.push_back(rows_[i].weight *
                         std::log(estimate.seconds / rows_[i].recorded->rows[row].seconds));
      }
    }
    return errors;
  }

  // A network is simulated, so that a new one is made only where its numbers have changed.
  void KeepNetwork() {
    std::map<std::string, double> numbers;
    for (const auto& [name, value] : cluster_.fitted) {
      for (const char* prefix : {"collective_", "payload_", "link_", "message_", "adapter_"}) {
        if (absl::StartsWith(name, prefix)) numbers[name] = value;
      }
    }
    if (network_ != nullptr && numbers == network_numbers_) return;
    network_ = std::make_unique<NetworkTime>(cluster_);
    network_numbers_ = std::move(numbers);
  }

  absl::StatusOr<Matrix> SlopesAt(const Vector& at, const Vector& errors) {
    constexpr double kStep = 1e-3;
    Matrix slopes;
    for (size_t i = 0; i < at.size(); ++i) {
      Vector beside = at;
      beside[i] += at[i] + kStep > 1 ? -kStep : kStep;
      LS_ASSIGN_OR_RETURN(Vector changed, ErrorsAt(beside));
      for (size_t row = 0; row < errors.size(); ++row) {
        changed[row] = (changed[row] - errors[row]) / (beside[i] - at[i]);
      }
      slopes.push_back(std::move(changed));
    }
    return slopes;
  }

  double Cost(const Vector& errors) const {
    double cost = 0;
    const double scale = options_.scale;
    for (const double error : errors) {
      const double relative = error / scale;
      cost += 2 * scale * scale * (std::sqrt(1 + relative * relative) - 1);
    }
    return cost;
  }

  const std::vector<FitRows>& rows_;
  Cluster cluster_;
  std::vector<Dialect> dialects_;
  const std::vector<FitParameter>& parameters_;
  const FitOptions options_;
  std::unique_ptr<NetworkTime> network_;
  std::map<std::string, double> network_numbers_;  // of network_
};

}  // namespace

bool SetFitted(const std::string& name, double value, Cluster& cluster,
               std::vector<Dialect>& dialects) {
  bool found = false;
  const auto set = [&](std::map<std::string, double>& fitted) {
    const auto at = fitted.find(name);
    if (at == fitted.end()) return;
    at->second = value;
    found = true;
  };
  set(cluster.fitted);
  for (Dialect& dialect : dialects) set(dialect.fitted());
  return found;
}

absl::StatusOr<Fit> FitTo(const std::vector<FitRows>& rows, const Cluster& cluster,
                          const std::vector<FitParameter>& parameters, const FitOptions& options) {
  return Fitting(rows, cluster, parameters, options).Run();
}

void ChooseRows(size_t first, size_t stride, std::vector<FitRows>& rows) {
  for (FitRows& file : rows) {
    file.chosen.clear();
    for (size_t row = first; row < file.recorded->rows.size(); row += stride) {
      file.chosen.push_back(row);
    }
  }
}

absl::StatusOr<std::vector<Judgement>> JudgeFit(const Fit& fit, const std::vector<FitRows>& rows) {
  std::vector<Judgement> judgements;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RecordedRows& recorded = *rows[i].recorded;
    LS_ASSIGN_OR_RETURN(const std::vector<double> predicted,
                        Predict(recorded, fit.dialects[i], fit.cluster));
    const bool all_chosen = rows[i].chosen.size() == predicted.size();
    std::vector<bool> judged(predicted.size(), true);
    for (const size_t row : rows[i].chosen) judged[row] = all_chosen;
    std::vector<MeasuredRow> others;
    std::vector<double> of_others;
    for (size_t row = 0; row < predicted.size(); ++row) {
      if (!judged[row]) continue;
      others.push_back(recorded.rows[row]);
      of_others.push_back(predicted[row]);
    }
    judgements.push_back(Judge(others, of_others));
  }
  return judgements;
}

}  // namespace lockstep
