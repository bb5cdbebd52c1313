#include "core/data/prefetch.h"

#include <exception>
#include <utility>  // std::move
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/base/program.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, const Sampler& sampler,
                       Allocator& allocator, const PrefetchOptions& options)
    : dataset_(std::move(dataset)),
      sampler_(sampler),
      allocator_(allocator),
      options_(options),
      next_step_(options.first_step) {
  CHECK_GE(options.depth, 1);
  CHECK(!options.micro_batches.empty());
  for (const int64_t micro_batch : options.micro_batches) {
    CHECK_GE(micro_batch, 0);
    CHECK_LT(micro_batch, sampler.micro_batches_per_step());
  }
  CHECK(allocator.device().type == DeviceType::kCpu) << "data sets write host memory";
  for (int64_t i = 0; i < options.depth; ++i) Enqueue();
  thread_ = std::thread([this] { Run(); });
}

Prefetcher::~Prefetcher() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::Enqueue() {
  Slot slot;
  slot.item.step = next_step_;
  slot.item.micro_batch = options_.micro_batches[next_micro_batch_];
  slot.item.batch = EmptyBatch(*dataset_, sampler_.samples_of(slot.item.micro_batch), allocator_,
                               MemoryClass::kWorkspace);
  queue_.push_back(std::move(slot));
  if (++next_micro_batch_ == options_.micro_batches.size()) {
    next_micro_batch_ = 0;
    ++next_step_;
  }
}

void Prefetcher::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      return stop_ || (rendered_ < std::ssize(queue_) && IsWanted(queue_[rendered_]));
    });
    if (stop_) return;
    Slot& slot = queue_[rendered_];
    // Next touches no slot that is not ready, and only adds others behind this one.
    lock.unlock();
    try {
      Render(slot);
    } catch (const std::exception&) {
      slot.status = StatusOfException();
    }
    lock.lock();
    slot.ready = true;
    ++rendered_;
    changed_.notify_all();
    if (!slot.status.ok()) return;  // nobody gets past this slot
  }
}

absl::Status Prefetcher::CountTargets(int64_t step) {
  if (counted_step_ == step) return absl::OkStatus();
  targets_of_step_ = 0;
  for (int64_t i = 0; i < sampler_.micro_batches_per_step(); ++i) {
    for (const SampleKey& key : sampler_.TrainKeys(step, i)) {
      LS_ASSIGN_OR_RETURN(const int64_t targets, dataset_->CountTargets(Split::kTrain, key));
      targets_of_step_ += targets;
    }
  }
  counted_step_ = step;
  return absl::OkStatus();
}

void Prefetcher::Render(Slot& slot) {
  Item& item = slot.item;
  const int64_t begin = NowNanos();
  const std::vector<SampleKey> keys = sampler_.TrainKeys(item.step, item.micro_batch);
  slot.status = dataset_->Fill(Split::kTrain, keys, item.batch);
  if (slot.status.ok() && dataset_->packs_documents()) {
    slot.status = CountTargets(item.step);
    item.batch.targets_of_step = targets_of_step_;
  }
  if (options_.rendered) {
    options_.rendered({.step = item.step,
                       .micro_batch = item.micro_batch,
                       .begin_nanos = begin,
                       .end_nanos = NowNanos()});
  }
}

absl::StatusOr<Prefetcher::Item> Prefetcher::Next() {
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (!IsWanted(queue_.front())) {
    return absl::OutOfRangeError(
        absl::StrCat("no more data: the run's last step, ", options_.end_step - 1, ", is over"));
  }
  Slot& front = queue_.front();
  int64_t wait_nanos = 0;
  if (!front.ready) {
    const int64_t begin = NowNanos();
    changed_.wait(lock, [&front] { return front.ready; });
    wait_nanos = NowNanos() - begin;
  }
  if (!front.status.ok()) return failure_ = front.status;
  Item item = std::move(front.item);
  item.wait_nanos = wait_nanos;
  queue_.pop_front();
  --rendered_;
  item.batch.inputs.storage().Rebook(MemoryClass::kActivations);
  item.batch.targets.storage().Rebook(MemoryClass::kActivations);
  if (item.batch.documents.defined()) {
    item.batch.documents.storage().Rebook(MemoryClass::kActivations);
  }
  try {
    Enqueue();
  } catch (const StatusException& exception) {
    return failure_ = exception.status();
  }
  lock.unlock();
  changed_.notify_all();
  return item;
}

}  // namespace lockstep
