// The tests that every backend passes. A backend's test instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Local, CommConformance, testing::Values(&MakeLocalBackend));
//
// Every rank runs the same body and checks what it sees itself, with gtest's expectations; what a
// rank expects it computes alone, so the ranks may be threads or processes.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/comm/conformance/test_memory.h"
#include "gtest/gtest.h"

namespace lockstep {

// What a rank does in a test.
using RankBody = std::function<absl::Status(RankUnderTest&)>;

class BackendUnderTest {
 public:
  virtual ~BackendUnderTest() = default;

  // Bodies are run with 1 to this many ranks.
  virtual int max_ranks() const = 0;

  // How many calls the backend itself makes in a group before it hands it out.
  virtual int own_calls() const { return 0; }
  // As errors write the last call of a rank that has made none in a test.
  virtual std::string last_own_call() const { return "no call yet"; }

  // Runs `body` on each rank of a new world, as RunRanks (core/comm/launch.h) does. Where ranks are
  // processes, each returns what its own rank knows as the first cause.
  virtual absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) = 0;
};

using BackendFactory = std::unique_ptr<BackendUnderTest> (*)();

class CommConformance : public testing::TestWithParam<BackendFactory> {
 protected:
  CommConformance() : backend_(GetParam()()) {}

  int max_ranks() const { return backend_->max_ranks(); }

  // As errors write the number of a test's call in its group, from 0.
  std::string Number(int call) const { return absl::StrCat("#", backend_->own_calls() + call); }
  std::string NoCall() const { return backend_->last_own_call(); }

  // For bodies in which nobody fails: a timeout that no healthy run meets.
  void RunOk(int ranks, const RankBody& body) {
    const absl::Status status = backend_->Run(ranks, absl::Minutes(5), body);
    EXPECT_TRUE(status.ok()) << status;
  }
  absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) {
    return backend_->Run(ranks, timeout, body);
  }

 private:
  std::unique_ptr<BackendUnderTest> backend_;
};

}  // namespace lockstep
