#include "tools/curve/reorderings.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/base/token_order.h"
#include "core/config/config_reader.h"
#include "core/nn/model.h"

namespace lockstep {
namespace {

constexpr int64_t kMostLeaves = 8;  // finer cuts cost time, and round no more

bool HasDropout(const TrainingRun& run) {
  double dropout = 0;
  ConfigReader(run.config.Table("model")).Read("dropout", &dropout);
  return dropout > 0 || (run.settings.lora && run.settings.lora->dropout > 0);
}

class ReorderedSamples : public Dataset {
 public:
  ReorderedSamples(std::shared_ptr<const Dataset> dataset, uint64_t key)
      : dataset_(std::move(dataset)), bits_(key) {}

  std::string Describe() const override { return dataset_->Describe(); }
  Task task() const override { return dataset_->task(); }
  Shape input_shape() const override { return dataset_->input_shape(); }
  Shape target_shape() const override { return dataset_->target_shape(); }
  DType input_dtype() const override { return dataset_->input_dtype(); }
  int64_t classes() const override { return dataset_->classes(); }
  int64_t size(Split split) const override { return dataset_->size(split); }

  absl::Status Fill(Split split, absl::Span<const SampleKey> keys,
                    const Batch& batch) const override {
    if (split != Split::kTrain || keys.empty()) return dataset_->Fill(split, keys, batch);
    std::vector<SampleKey> ordered(keys.begin(), keys.end());
    for (size_t last = ordered.size() - 1; last > 0; --last) {  // Fisher and Yates
      const uint32_t other = bits_.Bits(last, keys[0].augmentation);
      std::swap(ordered[last], ordered[other % (last + 1)]);
    }
    return dataset_->Fill(split, ordered, batch);
  }

  std::optional<uint64_t> file_checksum() const override { return dataset_->file_checksum(); }
  bool packs_documents() const override { return dataset_->packs_documents(); }
  absl::StatusOr<int64_t> CountTargets(Split split, const SampleKey& key) const override {
    return dataset_->CountTargets(split, key);
  }
  std::optional<double> entropy_rate() const override { return dataset_->entropy_rate(); }
  std::optional<double> loss_floor() const override { return dataset_->loss_floor(); }

 private:
  const std::shared_ptr<const Dataset> dataset_;
  const Philox bits_;
};

}  // namespace

std::string Reordering::ToString() const {
  return absl::StrCat(absl::StrJoin(assignments, " "),
                      sample_order ? ", samples in another order" : "");
}

absl::StatusOr<Reorderings> Reorderings::Of(const TrainingRun& run) {
  LS_ASSIGN_OR_RETURN(const Model model, run.make_model(run.config, *run.dataset));
  const Settings& settings = run.settings;
  const bool has_dropout = HasDropout(run);
  const bool keeps_micro_batches =
      !model.Statistics().empty() || model.counts_choices || has_dropout;
  Reorderings all;
  all.reorders_samples_ = !has_dropout && !model.counts_choices;

  const int64_t batch = settings.batch.size;
  const int64_t own = settings.cut.shards * settings.cut.micro_batches;
  Choice& of_batch = all.choices_.emplace_back();
  for (int64_t shards = 1; shards <= batch; ++shards) {
    for (int64_t micro_batches = 1; shards * micro_batches <= batch; ++micro_batches) {
      if (batch % (shards * micro_batches) != 0) continue;
      if (keeps_micro_batches && shards * micro_batches != own) continue;
      of_batch.push_back(
          {absl::StrCat("cut.shards=", shards), absl::StrCat("cut.micro_batches=", micro_batches)});
    }
  }
  if (of_batch.empty()) of_batch.emplace_back();  // micro-batches of unequal size stay as they are

  if (model.splits_sequence && !model.counts_choices && !has_dropout) {
    Choice& of_tokens = all.choices_.emplace_back();
    const int64_t time = run.dataset->target_shape().elements();
    for (int64_t leaves = 1; leaves <= std::min(time / 4, kMostLeaves); leaves *= 2) {
      if (TokenOrder{.time = time, .leaves = leaves}.Fits()) {
        of_tokens.push_back({absl::StrCat("cut.tokens=", leaves)});
      }
    }
  }

  Choice& of_features = all.choices_.emplace_back();
  for (int leaves = 1; leaves <= kMostLeaves; ++leaves) {
    if (leaves == 1 || model.CheckSplit(leaves).ok()) {
      of_features.push_back({absl::StrCat("cut.features=", leaves)});
    }
  }

  if (settings.precision.compute != DType::kF32) {
    const std::string compute = settings.precision.compute == DType::kBF16 ? "bf16" : "fp16";
    all.choices_.push_back({{"precision.reduce=fp32"}, {"precision.reduce=" + compute}});
  }
  return all;
}

Reordering Reorderings::Draw(uint64_t seed, uint64_t number) const {
  const Philox bits(PhiloxKey(seed, "reordering", ""));
  Reordering drawn;
  uint64_t index = 0;
  for (const Choice& choice : choices_) {
    const std::vector<std::string>& taken = choice[bits.Bits(index++, number) % choice.size()];
    drawn.assignments.insert(drawn.assignments.end(), taken.begin(), taken.end());
  }
  if (reorders_samples_) {
    drawn.sample_order = PhiloxKey(seed, "order of samples", absl::StrCat(number));
  }
  return drawn;
}

int64_t Reorderings::count() const {
  int64_t count = 1;
  for (const Choice& choice : choices_) count *= std::ssize(choice);
  return count;
}

std::shared_ptr<const Dataset> ReorderSamples(std::shared_ptr<const Dataset> dataset,
                                              uint64_t key) {
  return std::make_shared<ReorderedSamples>(std::move(dataset), key);
}

}  // namespace lockstep
