#include "strategies/single/single.h"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/operations.h"
#include "core/base/file.h"
#include "core/checkpoint/safetensors.h"
#include "core/nn/layers.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

// Where samples know nothing of each other (no batch statistics) and nothing is random, the loss
// and its gradients are those of the whole batch, however it is cut: only rounding differs.
TEST(SingleTest, AnyCutOfTheBatchIsTheSameTraining) {
  const auto losses = [](const Assignments& cut) {
    return RunStrategy(SingleStrategy(), MakeModel, SmallGptConfig(),
                       With({"model.dropout=0", "batch.size=10"}, cut))[0]
        .losses;
  };
  const std::vector<double> whole = losses({});
  ASSERT_EQ(whole.size(), 4u);
  for (const Assignments& cut :
       {Assignments{"cut.micro_batches=3"}, Assignments{"cut.micro_batches=100"},
        Assignments{"cut.shards=2", "cut.micro_batches=2"},
        Assignments{"cut.shards=5", "cut.micro_batches=3"}}) {
    const std::vector<double> parts = losses(cut);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t step = 0; step < whole.size(); ++step) {
      // AdamW divides gradients by their size, which magnifies the rounding of small ones.
      EXPECT_NEAR(parts[step] / whole[step], 1, 2e-5) << cut.back() << ", step " << step;
    }
  }
}

// Images, normalised as they come, and a classifier.
class NormalisedImages : public Block {
 public:
  NormalisedImages()
      : Block("first"),
        norm_(AddChild<BatchNormLayer>("norm", 3, Activation::kNone)),
        linear_(AddChild<LinearLayer>("linear", 32 * 32 * 3, 10)) {}

  std::vector<std::vector<float>>* seen = nullptr;  // images of each micro-batch that trains

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    const int64_t batch = inputs[0].shape()[0];
    if (seen != nullptr && pass.training()) {
      const auto pixels = inputs[0].value.span<float>();
      seen->emplace_back(pixels.begin(), pixels.end());
    }
    return {linear_(pass, Reshape(pass.tape, norm_(pass, inputs[0]), {batch, 32 * 32 * 3}))};
  }

 private:
  BatchNormLayer& norm_;
  LinearLayer& linear_;
};

absl::StatusOr<Model> MakeNormalisedImages(const Config&, const Dataset&) {
  Model model;
  model.blocks.push_back(std::make_unique<NormalisedImages>());
  return model;
}

std::vector<float> Stored(const std::string& name) {
  const auto reader =
      SafetensorsReader::Open(RunFolder() + "/checkpoints/step-00000003.safetensors");
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::vector<float> values(3);
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    if (tensor.name != name) continue;
    EXPECT_TRUE(reader->Read(tensor, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  ADD_FAILURE() << "no tensor " << name;
  return values;
}

// What a model's first layer normalises does not depend on parameters, so the running estimate of
// all samples is the same however they are cut: each counts alike, also those of smaller
// micro-batches.
TEST(SingleTest, RunningEstimatesDoNotDependOnTheCut) {
  std::vector<std::vector<float>> estimates;
  for (const Assignments& cut : {Assignments{}, Assignments{"cut.micro_batches=4"},
                                 Assignments{"cut.shards=2", "cut.micro_batches=3"}}) {
    RunStrategy(SingleStrategy(), MakeNormalisedImages, SmallResNetConfig(),
                With({"batch.size=10", "train.steps=3"}, cut));
    std::vector<float>& both = estimates.emplace_back(Stored("first.norm.running_mean"));
    for (const float variance : Stored("first.norm.running_var")) both.push_back(variance);
  }
  for (size_t i = 0; i < estimates[0].size(); ++i) {
    EXPECT_NE(estimates[0][i], i < 3 ? 0 : 1);
    EXPECT_NEAR(estimates[1][i], estimates[0][i], 1e-6);
    EXPECT_NEAR(estimates[2][i], estimates[0][i], 1e-6);
  }
}

// Not deferred, the estimate moves as torch's BatchNorm moves it that sees one micro-batch after
// the other: here computed in double precision, from the images as they came.
TEST(SingleTest, EstimatesFollowMicroBatchesWhereTheyAreNotDeferred) {
  constexpr int64_t kChannels = 3;
  std::vector<std::vector<float>> micro_batches;
  const ModelFactory make_model = [&](const Config&, const Dataset&) -> absl::StatusOr<Model> {
    Model model;
    auto block = std::make_unique<NormalisedImages>();
    block->seen = &micro_batches;
    model.blocks.push_back(std::move(block));
    return model;
  };
  RunStrategy(SingleStrategy(), make_model, SmallResNetConfig(),
              {"batch.size=10", "train.steps=3", "cut.shards=2", "cut.micro_batches=3",
               "train.deferred_batch_norm=false"});
  ASSERT_EQ(micro_batches.size(), 3u * 2 * 3);
  std::vector<double> mean(kChannels, 0.0), variance(kChannels, 1.0);
  for (const std::vector<float>& images : micro_batches) {
    const double pixels = static_cast<double>(images.size()) / kChannels;
    for (size_t c = 0; c < kChannels; ++c) {
      double sum = 0, squares = 0;
      for (size_t i = c; i < images.size(); i += kChannels) sum += images[i];
      for (size_t i = c; i < images.size(); i += kChannels) {
        squares += (images[i] - sum / pixels) * (images[i] - sum / pixels);
      }
      mean[c] += 0.1 * (sum / pixels - mean[c]);
      variance[c] += 0.1 * (squares / (pixels - 1) - variance[c]);
    }
  }
  const std::vector<float> stored_mean = Stored("first.norm.running_mean");
  const std::vector<float> stored_variance = Stored("first.norm.running_var");
  for (size_t c = 0; c < kChannels; ++c) {
    EXPECT_NEAR(stored_mean[c], mean[c], 1e-6);
    EXPECT_NEAR(stored_variance[c], variance[c], 1e-6);
  }
}

TEST(SingleTest, AResumedRunGoesOnWithUnevenMicroBatches) {
  const std::string config = SmallResNetConfig() + "[checkpoint]\nevery = 1\n";
  const Assignments cut = {"batch.size=10", "cut.shards=2", "cut.micro_batches=3"};
  const auto whole = RunStrategy(SingleStrategy(), MakeModel, config, cut);
  RunStrategy(SingleStrategy(), MakeModel, config, With(cut, {"train.steps=2"}));
  const auto resumed = ResumeStrategy(SingleStrategy(), MakeModel, config, cut);
  EXPECT_EQ(resumed[0].losses,
            std::vector<double>(whole[0].losses.begin() + 2, whole[0].losses.end()));
  EXPECT_EQ(resumed[0].parameter_hash, whole[0].parameter_hash);
}

// The file for TensorBoard that goes on where a run is resumed is one of its own.
TEST(SingleTest, ScalarsAreWrittenForTensorBoardWhereThatIsAskedFor) {
  const std::string config = SmallResNetConfig() + "[checkpoint]\nevery = 1\n";
  const std::string folder = RunFolder() + "/tensorboard";
  RunStrategy(SingleStrategy(), MakeModel, config, {"train.steps=1"});
  EXPECT_FALSE(PathExists(folder));
  RunStrategy(SingleStrategy(), MakeModel, config,
              {"train.steps=1", "metrics.tensorboard=true", "validation.every=1"});
  ASSERT_EQ(ListFolder(folder)->size(), 1u);
  const std::string bytes = ReadFile(folder + "/" + ListFolder(folder)->front()).value();
  for (const char* tag : {"train/loss", "train/learning_rate", "train/gradient_norm",
                          "train/seconds", "train/memory_peak", "validation/loss"}) {
    EXPECT_NE(bytes.find(tag), std::string::npos) << tag;
  }
  ResumeStrategy(SingleStrategy(), MakeModel, config,
                 {"train.steps=2", "metrics.tensorboard=true"});
  EXPECT_EQ(ListFolder(folder)->size(), 2u);
}

}  // namespace
}  // namespace lockstep
