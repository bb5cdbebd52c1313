#include "strategies/expert_parallel/expert_ranks.h"

#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "core/autograd/weight_gradients.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

// How many rows each expert gets of each leaf, by (expert, leaf): what the ranks of experts get
// lies one behind the other.
std::vector<int64_t> CountsOf(const ExpertRanges& rows) {
  std::vector<int64_t> counts;
  for (int64_t expert = 0; expert < rows.experts(); ++expert) {
    for (int64_t leaf = 0; leaf < rows.leaves(); ++leaf) {
      counts.push_back(rows.Of(expert, leaf).count);
    }
  }
  return counts;
}

Tensor Like(Kernels& kernels, const Tensor& x, int64_t rows, MemoryClass memory_class) {
  return kernels.Empty({rows, x.shape()[-1]}, x.dtype(), memory_class);
}

}  // namespace

ExpertRanks::ExpertRanks(Communicator& ranks) : ranks_(ranks) {
  std::vector<Communicator::Route> routes;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      if (from != to) routes.push_back({from, to});
    }
  }
  ThrowIfError(ranks_.ConnectRoutes(routes));
}

Range ExpertRanks::To(int rank, const ExpertRanges& rows) const {
  const int64_t experts = rows.experts() / size();
  const int64_t first = rows.Of(rank * experts).first;
  const Range last = rows.Of((rank + 1) * experts - 1);
  return {.first = first, .count = last.first + last.count - first};
}

void ExpertRanks::Move(Kernels& kernels, const Tensor& from,
                       const std::function<Range(int rank)>& out, const Tensor& to,
                       const std::function<Range(int rank)>& in, const char* label) {
  std::vector<Tensor> leaving;
  std::vector<RowsToFill> coming;
  std::vector<Work> works;
  for (int step = 1; step < size(); ++step) {
    const int next = (index() + step) % size(), before = (index() + size() - step) % size();
    if (out(next).count > 0) {
      leaving.push_back(RowsOf(kernels, from, out(next)));
      works.push_back(ranks_.Send(leaving.back(), next, label));
    }
    if (in(before).count > 0) {
      coming.emplace_back(kernels, to, in(before));
      works.push_back(ranks_.Recv(coming.back().tensor(), before, label));
    }
  }
  if (in(index()).count > 0) {
    const RowsToFill own(kernels, to, in(index()));
    kernels.Copy(RowsOf(kernels, from, out(index())), own.tensor());
    own.Put();
  }
  ThrowIfError(WaitAll(absl::MakeSpan(works)));
  for (const RowsToFill& rows : coming) rows.Put();
}

Tensor ExpertRanks::ToExperts(Kernels& kernels, const Tensor& x, const Received& received,
                              const char* label) {
  const ReceivedRows& rows = *received.rows;
  const Tensor arrived = Like(kernels, x, rows.dispatched(), MemoryClass::kCommunication);
  Move(
      kernels, x, [&](int rank) { return To(rank, *received.sent); }, arrived,
      [&](int rank) { return rows.From(rank); }, label);
  const Tensor ordered = Like(kernels, x, rows.dispatched(), MemoryClass::kActivations);
  kernels.Embedding(rows.arrivals(), arrived, ordered);
  return ordered;
}

Tensor ExpertRanks::ToTokens(Kernels& kernels, const Tensor& x, const Received& received,
                             const char* label) {
  const ReceivedRows& rows = *received.rows;
  const Tensor leaving = Like(kernels, x, rows.dispatched(), MemoryClass::kCommunication);
  kernels.Embedding(rows.places(), x, leaving);
  const ExpertRanges& sent = *received.sent;
  const Tensor result = Like(kernels, x, sent.dispatched(), MemoryClass::kActivations);
  Move(
      kernels, leaving, [&](int rank) { return rows.From(rank); }, result,
      [&](int rank) { return To(rank, sent); }, label);
  if (sent.used() < sent.dispatched()) {
    const RowsToFill unused(kernels, result,
                            Range{.first = sent.used(), .count = sent.dispatched() - sent.used()});
    kernels.Fill(unused.tensor(), 0);
    unused.Put();
  }
  return result;
}

ExpertGroup::Received ExpertRanks::ToExperts(Pass& pass, const std::string& layer,
                                             const Variable& sent, const SharedRanges& rows) {
  Kernels& k = pass.kernels();
  const std::vector<int64_t> counts = CountsOf(*rows);
  std::vector<int64_t> coming(counts.size());
  ThrowIfError(ExchangeNumbers(ranks_, counts, absl::MakeSpan(coming), kExpertCounts));
  if (pass.routing != nullptr) pass.routing->Meet(coming);
  Received received = {.x = {},
                       .rows = std::make_shared<const ReceivedRows>(
                           k, size(), rows->experts() / size(), rows->leaves(), coming),
                       .sent = rows};
  if (pass.training() && !pass.is_recomputing()) {
    Counts& all = counts_[layer][pass.micro_batch];
    all.sent += rows->used() - To(index(), *rows).count;
    all.received += received.rows->used() - received.rows->From(index()).count;
    ++all.times;
  }
  received.x =
      pass.tape.Result(ToExperts(k, sent.value, received, kExpertRows), sent.needs_gradient());
  pass.tape.Record(received.x, [this, &k, to = Received{{}, received.rows, rows},
                                sent = sent.gradient](const Tensor& dy) {
    sent->Add(k, ToTokens(k, dy, to, kExpertRowGradients));
  });
  return received;
}

Variable ExpertRanks::ToTokens(Pass& pass, const Variable& made, const Received& received) {
  Kernels& k = pass.kernels();
  Variable out =
      pass.tape.Result(ToTokens(k, made.value, received, kExpertRows), made.needs_gradient());
  pass.tape.Record(
      out, [this, &k, from = Received{{}, received.rows, received.sent}, made = made.gradient](
               const Tensor& dy) { made->Add(k, ToExperts(k, dy, from, kExpertRowGradients)); });
  return out;
}

std::vector<ExpertRanks::Rows> ExpertRanks::MeanRows(const std::string& layer) const {
  std::vector<Rows> rows;
  const auto found = counts_.find(layer);
  if (found == counts_.end()) return rows;
  for (const auto& [micro_batch, counts] : found->second) {
    const auto times = static_cast<double>(counts.times);
    rows.push_back({.sent = static_cast<double>(counts.sent) / times,
                    .received = static_cast<double>(counts.received) / times});
  }
  return rows;
}

}  // namespace lockstep
