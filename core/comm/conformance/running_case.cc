#include "core/comm/conformance/running_case.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "conformance";

}  // namespace

std::string ToString(const Case& c) {
  return absl::StrCat(Name(c.operation), " of ", Name(c.dtype), ", ", Name(c.reduce_op), ", root ",
                      c.root, ", chunks ", absl::StrJoin(c.counts, "+"),
                      c.in_place ? ", in place" : "", ", seed ", c.seed);
}

std::vector<int64_t> PartsFor(int64_t total, int size, bool even, bool in_place, DType dtype,
                              uint64_t seed) {
  const int64_t unit = in_place ? kAlignment / SizeOf(dtype) : 1;
  std::vector<int64_t> chunks;
  for (int member = 0; member < size; ++member) {
    int64_t chunk = (total + size - 1) / size;
    if (!even) {  // from nothing to twice as much
      chunk = static_cast<int64_t>(RandomBits(seed, static_cast<uint64_t>(member)) %
                                   static_cast<uint64_t>(2 * chunk + 1));
    }
    chunks.push_back((chunk + unit - 1) / unit * unit);
  }
  return chunks;
}

RunningCase::RunningCase(const Case& c, Communicator& comm, const RankUnderTest& rank)
    : case_(c), member_(comm.rank()), memory_(rank.memory()), arithmetic_(rank.arithmetic()) {
  const Bytes input = InputOf(c, member_);
  const int64_t begin = c.begin_of(member_);
  const int64_t count = c.counts[member_];
  const bool root = member_ == c.root;
  if (!c.in_place) {
    input_ = memory_.TensorOf(input, c.dtype);
    output_ = memory_.Empty(OutputCount(c, member_), c.dtype);
    if (c.operation == Operation::kBroadcast) {  // which knows no other way
      output_ = memory_.Empty(c.total(), c.dtype);
      if (!input.empty()) memory_.Write(input, output_);
      input_ = output_;
    }
  } else if (c.operation == Operation::kAllGather || (c.operation == Operation::kGather && root)) {
    output_ = memory_.Empty(c.total(), c.dtype);
    input_ = output_.View(begin, {count});
    if (!input.empty()) memory_.Write(input, input_);
  } else if (c.operation == Operation::kReduceScatter ||
             (c.operation == Operation::kScatter && root)) {
    input_ = memory_.TensorOf(input, c.dtype);
    output_ = input_.View(begin, {count});
  } else if (c.operation == Operation::kGather || c.operation == Operation::kScatter) {
    input_ = memory_.TensorOf(input, c.dtype);
    output_ = memory_.Empty(OutputCount(c, member_), c.dtype);
  } else {
    output_ = memory_.Empty(c.total(), c.dtype);
    if (!input.empty()) memory_.Write(input, output_);
    input_ = output_;
  }

  switch (c.operation) {
    case Operation::kAllReduce:
      work_ = comm.AllReduce(input_, output_, c.reduce_op, kLabel);
      break;
    case Operation::kReduceScatter:
      work_ = comm.ReduceScatter(input_, output_, c.reduce_op, kLabel, c.counts);
      break;
    case Operation::kAllGather:
      work_ = comm.AllGather(input_, output_, kLabel, c.counts);
      break;
    case Operation::kBroadcast:
      work_ = comm.Broadcast(output_, c.root, kLabel);
      break;
    case Operation::kReduce:
      work_ = comm.Reduce(input_, root ? output_ : Tensor(), c.reduce_op, c.root, kLabel);
      break;
    case Operation::kGather:
      work_ = comm.Gather(input_, root ? output_ : Tensor(), c.root, kLabel, c.counts);
      break;
    case Operation::kScatter:
      work_ = comm.Scatter(root ? input_ : Tensor(), output_, c.root, kLabel, c.counts);
      break;
    case Operation::kAllToAll:
      work_ = comm.AllToAll(input_, output_, kLabel);
      break;
    default:
      ADD_FAILURE() << "no case of " << Name(c.operation);
  }
}

void RunningCase::WaitAndCheck() {
  const absl::Status status = work_.Wait();
  ASSERT_TRUE(status.ok()) << status;
  if (OutputCount(case_, member_) > 0) {
    // As one comparison: a million elements are not worth a million expectations.
    EXPECT_TRUE(Agrees(case_, member_, memory_.Read(output_), arithmetic_))
        << ToString(case_) << ", member " << member_;
  }
  const bool input_is_own = !case_.in_place && case_.operation != Operation::kBroadcast;
  if (input_is_own && InputCount(case_, member_) > 0) {
    EXPECT_TRUE(memory_.Read(input_) == InputOf(case_, member_))
        << ToString(case_) << ", input of member " << member_;
  }
}

}  // namespace lockstep
