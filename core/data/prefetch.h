#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/data/dataset.h"
#include "core/data/sampler.h"

namespace lockstep {

// A micro-batch that was made, and when, by NowNanos.
struct RenderedBatch {
  int64_t step = 0;
  int64_t micro_batch = 0;  // of the step's global micro-batches
  int64_t begin_nanos = 0, end_nanos = 0;
};

struct PrefetchOptions {
  int64_t first_step = 0;                                  // a resumed run begins later
  int64_t end_step = std::numeric_limits<int64_t>::max();  // the first step that is not wanted
  std::vector<int64_t> micro_batches = {0};                // of the step's global micro-batches
  int64_t depth = 3;                                       // micro-batches rendered ahead
  // Told of each micro-batch by the thread that renders them, before Next hands it out. May be
  // null.
  std::function<void(const RenderedBatch&)> rendered = nullptr;
};

// Renders the training micro-batches of one rank ahead of their use, in a thread of its own: those
// of its first step in their order, then those of the next step, and so on.
//
//   Prefetcher prefetcher(dataset, sampler, allocator, {.micro_batches = {0, 1, 2, 3}});
//   LS_ASSIGN_OR_RETURN(Prefetcher::Item item, prefetcher.Next());
//
// Memory: `depth` batches are booked under kWorkspace, from the construction to the end; a batch
// that Next hands out is booked under kActivations, where inputs belong, and a new one takes its
// place in the queue. All is allocated by the thread that calls Next, so a rank's memory books do
// not depend on how fast the other thread is. The thread itself allocates no tensors.
//
// Next and the destructor belong to one thread, the rank's.
class Prefetcher {
 public:
  struct Item {
    int64_t step = 0;
    int64_t micro_batch = 0;  // of the step's global micro-batches
    Batch batch;
    int64_t wait_nanos = 0;  // how long Next waited for the batch: 0 when it was ready
  };

  // Starts rendering. `sampler` is copied. The allocator hands out host memory and outlives the
  // prefetcher and the batches. Requires depth >= 1 and micro-batches that the sampler has. Throws
  // StatusException when there is no room for the queue.
  Prefetcher(std::shared_ptr<const Dataset> dataset, const Sampler& sampler, Allocator& allocator,
             const PrefetchOptions& options);

  // Stops the thread, within the time of one micro-batch.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next micro-batch. What the data set reported comes back when its turn has come, after
  // the good ones before it, and again at each later call; ResourceExhausted when there is no room
  // for the batch's successor; OutOfRange after the last step.
  absl::StatusOr<Item> Next();

 private:
  struct Slot {
    Item item;
    absl::Status status;
    bool ready = false;
  };

  void Run();
  void Render(Slot& slot);
  // Counts the targets of a step's global batch, the micro-batches of other ranks included, where
  // this is not the step that was counted last. On the thread.
  absl::Status CountTargets(int64_t step);
  // Puts an unrendered slot with a batch of its own at the end of the queue. Behind the last step's
  // last batch slots are never rendered: they only keep a rank's memory from depending on how many
  // steps are left. Call with the mutex held, or before the thread runs. Throws StatusException
  // when there is no room.
  void Enqueue();
  bool IsWanted(const Slot& slot) const { return slot.item.step < options_.end_step; }

  const std::shared_ptr<const Dataset> dataset_;
  const Sampler sampler_;
  Allocator& allocator_;
  const PrefetchOptions options_;

  int64_t counted_step_ = -1, targets_of_step_ = 0;  // the thread's

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Slot> queue_;       // ready ones first; a deque keeps references while its ends move
  int64_t rendered_ = 0;         // ready slots in the queue
  int64_t next_step_;            // of the slot to be enqueued next
  size_t next_micro_batch_ = 0;  // an index into the options' list
  bool stop_ = false;
  absl::Status failure_;  // what Next has reported and goes on reporting; only Next looks at it
  std::thread thread_;
};

}  // namespace lockstep
