#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// Two hosts of one core each with a network between them, made of this machine by two_hosts.sh for
// as long as the object lives.
class TwoHosts {
 public:
  // `rate`: of the network in each direction, as tc(8) has it: "1gbit". PermissionDenied without
  // root, and FailedPrecondition where the system has no network namespaces to give.
  static absl::StatusOr<TwoHosts> Create(const std::string& script, const std::string& rate);

  TwoHosts(TwoHosts&& other) noexcept : script_(std::exchange(other.script_, {})) {}
  TwoHosts& operator=(TwoHosts&&) = delete;
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;
  ~TwoHosts();

  // Words before those of a program, of which each host gets a rank: by Open MPI over TCP, or with
  // the environment that torchrun gives.
  std::vector<std::string> Mpirun() const { return {script_, "mpirun"}; }
  std::vector<std::string> Torchrun() const { return {script_, "torchrun"}; }

 private:
  explicit TwoHosts(std::string script) : script_(std::move(script)) {}

  std::string script_;  // empty: moved from
};

}  // namespace lockstep
