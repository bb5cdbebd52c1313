#include "models/models.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/resnet/resnet.h"
#include "models/transformer/llama.h"
#include "models/transformer/transformer.h"
#include "models/unet/unet.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A data set of which only the shapes are asked.
class ShapesOnly : public Dataset {
 public:
  ShapesOnly(Task task, const Shape& input, int64_t classes)
      : task_(task), input_(input), classes_(classes) {}

  std::string Describe() const override { return "made-up samples"; }
  Task task() const override { return task_; }
  Shape input_shape() const override { return input_; }
  Shape target_shape() const override {
    switch (task_) {
      case Task::kClassification:
        return Shape();
      case Task::kSegmentation:
        return {input_[0], input_[1]};
      case Task::kLanguageModel:
        return input_;
    }
    return Shape();
  }
  DType input_dtype() const override {
    return task_ == Task::kLanguageModel ? DType::kI32 : DType::kF32;
  }
  int64_t classes() const override { return classes_; }
  int64_t size(Split) const override { return 0; }
  absl::Status Fill(Split, absl::Span<const SampleKey>, const Batch&) const override {
    return absl::UnimplementedError("only shapes");
  }

 private:
  Task task_;
  Shape input_;
  int64_t classes_;
};

const ShapesOnly kImages(Task::kClassification, {32, 32, 3}, 10);
const ShapesOnly kSegmented(Task::kSegmentation, {32, 32, 3}, 11);
const ShapesOnly kText(Task::kLanguageModel, {64}, 65);

absl::StatusOr<Model> Make(const std::string& text, const Dataset& dataset) {
  const absl::StatusOr<Config> config = Config::FromString("[model]\n" + text, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return MakeModel(*config, dataset);
}

std::string Problem(const std::string& text, const Dataset& dataset) {
  const absl::Status status = Make(text, dataset).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(MakeModelTest, ToyFlattensTheImages) {
  const auto model = Make("kind = \"toy\"\nhidden = 7", kImages);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->ParameterCount(), 7 * 3072 + 7 + 10 * 7 + 10);
}

TEST(MakeModelTest, ResNetTakesClassesAndImagesFromTheData) {
  const auto model = Make("kind = \"resnet\"\ndepth = 34\nwidth = 16", kImages);
  ASSERT_TRUE(model.ok()) << model.status();
  const Model expected = MakeResNet({.depth = 34, .classes = 10, .width = 16, .image = 32});
  EXPECT_EQ(model->ParameterCount(), expected.ParameterCount());
  EXPECT_EQ(model->ForwardMacsPerSample(), expected.ForwardMacsPerSample());

  const auto imagenet = Make("kind = \"resnet\"\ndepth = 50\nstem = \"imagenet\"",
                             ShapesOnly(Task::kClassification, {224, 224, 3}, 1000));
  ASSERT_TRUE(imagenet.ok()) << imagenet.status();
  EXPECT_EQ(imagenet->ParameterCount(), 25557032);
}

TEST(MakeModelTest, UNetTakesClassesAndImagesFromTheData) {
  const auto model = Make("kind = \"unet\"\nlevels = 2\nwidth = 8", kSegmented);
  ASSERT_TRUE(model.ok()) << model.status();
  const Model expected = MakeUNet({.levels = 2, .width = 8, .classes = 11, .image = 32});
  EXPECT_EQ(model->ParameterCount(), expected.ParameterCount());
  EXPECT_EQ(model->ForwardMacsPerSample(), expected.ForwardMacsPerSample());
}

TEST(MakeModelTest, TransformerTakesVocabularyAndContextFromTheData) {
  const auto model =
      Make("kind = \"transformer\"\nlayers = 3\nheads = 2\nwidth = 32\ndropout = 0.1", kText);
  ASSERT_TRUE(model.ok()) << model.status();
  const Model expected = MakeTransformer(
      {.layers = 3, .heads = 2, .width = 32, .context = 64, .vocabulary = 65, .dropout = 0.1f});
  EXPECT_EQ(model->ParameterCount(), expected.ParameterCount());
  EXPECT_EQ(model->ForwardMacsPerSample(), expected.ForwardMacsPerSample());
}

TEST(MakeModelTest, LlamaTakesItsSizesFromKeysAndData) {
  const auto model = Make(
      "kind = 'llama'\nlayers = 3\nheads = 6\nkey_heads = 2\nwidth = 48\nmlp_width = 80\n"
      "head = 'tied'\nrope_theta = 5e5\nnorm_epsilon = 1e-6\n"
      "rope_scaling = {factor = 4, original_context = 32}",
      kText);
  ASSERT_TRUE(model.ok()) << model.status();
  RotaryOptions rotary = {.theta = 5e5, .scaling = RotaryOptions::Scaling{}};
  rotary.scaling->factor = 4;
  rotary.scaling->original_context = 32;
  const Model expected = MakeLlama({.layers = 3,
                                    .heads = 6,
                                    .key_heads = 2,
                                    .width = 48,
                                    .mlp_width = 80,
                                    .context = 64,
                                    .vocabulary = 65,
                                    .norm_epsilon = 1e-6,
                                    .rotary = rotary,
                                    .head = LlamaOptions::Head::kTied});
  EXPECT_EQ(model->ParameterCount(), expected.ParameterCount());
  EXPECT_EQ(model->ForwardMacsPerSample(), expected.ForwardMacsPerSample());
  EXPECT_EQ(model->published.config, expected.published.config);
  // By default as many heads of keys as of queries, and an MLP of 8 / 3 of the width.
  const auto plain = Make("kind = 'llama'\nlayers = 1\nheads = 3\nwidth = 96", kText);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->ParameterCount(), 2 * 65 * 96 + 4 * 96 * 96 + 3 * 96 * 256 + 3 * 96);
}

TEST(MakeModelTest, ReadsExperts) {
  const auto model = Make(
      "kind = 'llama'\nlayers = 2\nheads = 4\nwidth = 32\nmlp_width = 64\n"
      "experts = {count = 6, top_k = 3, width = 48, shared = 2, scores = 'sigmoid', scaling = 2.5,"
      " bias_rate = 1e-3, auxiliary_loss = 0.01}",
      kText);
  ASSERT_TRUE(model.ok()) << model.status();
  LlamaOptions options = {
      .layers = 2, .heads = 4, .key_heads = 4, .width = 32, .context = 64, .vocabulary = 65};
  options.experts = ExpertsOptions{.routing = {.experts = 6, .chosen = 3}, .hidden = 48};
  options.shared_width = 96;
  const Model expected = MakeLlama(options);
  EXPECT_EQ(model->ParameterCount(), expected.ParameterCount());
  EXPECT_EQ(model->ActiveCount(), expected.ActiveCount());
  EXPECT_TRUE(model->counts_choices);
  EXPECT_FALSE(expected.counts_choices);
  // An expert is as wide as an MLP would be, and a token has two.
  const auto plain = Make(
      "kind = 'llama'\nlayers = 1\nheads = 4\nwidth = 32\nmlp_width = 64\n"
      "experts = {count = 4}",
      kText);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->idle_parameters, 2 * 3 * 32 * 64);
}

// What theory says about stages rests on it.
TEST(MakeModelTest, BlocksStateWhatTheyHandOn) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  const ShapesOnly large(Task::kClassification, {64, 64, 3}, 7);
  for (const auto& [text, dataset] :
       {std::pair<std::string, const ShapesOnly*>("kind = 'toy'\nhidden = 7", &kImages),
        {"kind = 'transformer'\nlayers = 2\nheads = 2\nwidth = 32", &kText},
        {"kind = 'llama'\nlayers = 2\nheads = 4\nkey_heads = 2\nwidth = 32", &kText},
        {"kind = 'llama'\nlayers = 2\nheads = 4\nwidth = 32\nexperts = {count = 3}", &kText},
        {"kind = 'resnet'\ndepth = 34\nwidth = 16", &kImages},
        {"kind = 'resnet'\ndepth = 50\nwidth = 16\nstem = 'imagenet'", &large},
        {"kind = 'unet'\nlevels = 2\nwidth = 8", &kSegmented}}) {
    const absl::StatusOr<Model> model = Make(text, *dataset);
    ASSERT_TRUE(model.ok()) << model.status();
    Materialize(model->Parameters(), /*seed=*/1, kernels);
    Materialize(model->Statistics(), kernels);
    Tape tape(kernels, Tape::Recording::kOff);
    Pass pass = {.tape = tape};
    const Batch batch = EmptyBatch(*dataset, 3, allocator, MemoryClass::kActivations);
    std::memset(batch.inputs.raw(), 0, batch.inputs.bytes());
    Variables values = {Variable(batch.inputs)};
    for (const auto& block : model->blocks) {
      values = block->Run(pass, std::move(values));
      EXPECT_EQ(values[0].value.elements(), 3 * block->cost.output_elements)
          << text << ": " << block->name();
    }
  }
}

TEST(MakeModelTest, RefusesWrongKeys) {
  EXPECT_THAT(Problem("kind = \"resnett\"", kImages),
              AllOf(HasSubstr("model.kind"), HasSubstr("resnet")));
  EXPECT_THAT(Problem("hidden = 3", kImages), HasSubstr("model.kind"));
  EXPECT_THAT(Problem("kind = \"gpt\"\nwidth = 3", kText), Not(HasSubstr("model.width")));
  EXPECT_THAT(Problem("kind = \"resnet\"\ndepth = 19", kImages),
              AllOf(HasSubstr("model.depth"), HasSubstr("19"), HasSubstr("18, 34 and 50")));
  EXPECT_THAT(Problem("kind = \"resnet\"\ndetph = 18", kImages),
              AllOf(HasSubstr("detph"), HasSubstr("depth")));
  EXPECT_THAT(Problem("kind = \"transformer\"\nheads = 5\nwidth = 32", kText),
              AllOf(HasSubstr("model.width"), HasSubstr("5 heads")));
  EXPECT_THAT(Problem("kind = \"transformer\"\ndropout = 1.0", kText), HasSubstr("model.dropout"));
  EXPECT_THAT(Problem("kind = \"unet\"\nlevels = 0", kSegmented), HasSubstr("model.levels"));
}

TEST(MakeModelTest, RefusesWrongKeysOfLlamas) {
  const auto problem = [](const std::string& keys) {
    return Problem("kind = 'llama'\nheads = 4\nwidth = 32\n" + keys, kText);
  };
  EXPECT_THAT(problem("key_heads = 3"), AllOf(HasSubstr("model.key_heads"), HasSubstr("4 heads")));
  EXPECT_THAT(Problem("kind = 'llama'\nheads = 4\nwidth = 36", kText),
              AllOf(HasSubstr("model.width"), HasSubstr("4 heads of even width")));
  EXPECT_THAT(problem("experts = {count = 4, top_k = 5}"),
              AllOf(HasSubstr("model.experts.top_k"), HasSubstr("there are 4 experts")));
  EXPECT_THAT(problem("experts = {top_k = 2}"), HasSubstr("model.experts.count"));
  EXPECT_THAT(problem("experts = {count = 4, scores = 'tanh'}"),
              AllOf(HasSubstr("model.experts.scores"), HasSubstr("softmax")));
  EXPECT_THAT(problem("experts = {count = 4, capacity_factor = -1}"),
              HasSubstr("model.experts.capacity_factor"));
  EXPECT_THAT(problem("head = 'none'"), AllOf(HasSubstr("model.head"), HasSubstr("tied")));
  EXPECT_THAT(problem("rope_theta = 0"), HasSubstr("model.rope_theta"));
  EXPECT_THAT(problem("dropout = 0.1"), HasSubstr("unknown key model.dropout"));
  EXPECT_THAT(problem("rope_scaling = {type = 'yarn'}"),
              AllOf(HasSubstr("model.rope_scaling.type"), HasSubstr("yarn"), HasSubstr("llama3")));
  EXPECT_THAT(problem("rope_scaling = {factr = 2}"),
              HasSubstr("did you mean model.rope_scaling.factor"));
  EXPECT_THAT(problem("rope_scaling = {low_freq_factor = 4}"),
              HasSubstr("high_freq_factor must be above"));
  EXPECT_THAT(Problem("kind = 'llama'", kImages), AllOf(HasSubstr("llama"), HasSubstr("text")));
}

TEST(MakeModelTest, RefusesDataThatDoesNotFit) {
  for (const char* kind : {"toy", "resnet"}) {
    EXPECT_THAT(Problem("kind = \"" + std::string(kind) + "\"", kText),
                AllOf(HasSubstr(kind), HasSubstr("made-up samples"), HasSubstr("images")));
  }
  EXPECT_THAT(Problem("kind = \"resnet\"", kSegmented), HasSubstr("one class each"));
  EXPECT_THAT(Problem("kind = \"unet\"", kImages),
              AllOf(HasSubstr("unet"), HasSubstr("made-up samples"), HasSubstr("every pixel")));
  EXPECT_THAT(
      Problem("kind = \"unet\"\nlevels = 3", ShapesOnly(Task::kSegmentation, {36, 36, 3}, 11)),
      AllOf(HasSubstr("model.levels is 3"), HasSubstr("36 x 36"), HasSubstr("2 times")));
  EXPECT_THAT(Problem("kind = \"transformer\"", kImages),
              AllOf(HasSubstr("transformer"), HasSubstr("made-up samples"), HasSubstr("text")));
}

}  // namespace
}  // namespace lockstep
