#include "models/transformer/gpt2_names.h"

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/weights.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/strategy/model_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/transformer/gpt2_file.h"
#include "models/transformer/transformer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const TransformerOptions kSmall = {
    .layers = 2, .heads = 3, .width = 12, .context = 5, .vocabulary = 17};

class Gpt2NamesTest : public ::testing::Test {
 protected:
  Gpt2NamesTest() : path_(absl::StrCat(::testing::TempDir(), "/gpt2_names_test.safetensors")) {}

  absl::Status Load(const SafetensorsByHand& file) {
    std::ofstream(path_, std::ios::binary) << file.Bytes();
    model_ = MakeTransformer(kSmall);
    Materialize(model_.Parameters(), /*seed=*/1, kernels_);
    return LoadWeights(path_, model_.published, WeightsOf(model_, allocator_), kernels_);
  }

  void ExpectValues() {
    for (const Parameter* parameter : model_.Parameters()) {
      const std::string& name =
          parameter->tied_to != nullptr ? parameter->tied_to->name : parameter->name;
      const int64_t columns = parameter->shape[parameter->shape.rank() - 1];
      for (int64_t i = 0; i < parameter->shape.elements(); ++i) {
        ASSERT_EQ(parameter->value.data<float>()[i], Gpt2Value(name, i / columns, i % columns))
            << parameter->name << " element " << i;
      }
    }
  }

  std::string path_;
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Model model_;
};

TEST_F(Gpt2NamesTest, EveryParameterHasItsPlace) {
  ASSERT_EQ(Load(Gpt2File(kSmall)), absl::OkStatus());
  ExpectValues();
  ASSERT_EQ(Load(Gpt2File(kSmall, "transformer.")), absl::OkStatus());
  ExpectValues();
}

TEST_F(Gpt2NamesTest, ALongerContextIsCutShort) {
  ASSERT_EQ(Load(Gpt2File(kSmall, "", /*spare_positions=*/7)), absl::OkStatus());
  ExpectValues();
}

TEST_F(Gpt2NamesTest, MasksAndTheTiedHeadMayBeThere) {
  SafetensorsByHand file = Gpt2File(kSmall, "transformer.");
  const auto any = [](int64_t, int64_t) { return 1.0f; };
  for (int layer = 0; layer < 2; ++layer) {
    file.Add(absl::StrCat("transformer.h.", layer, ".attn.bias"), 5, 5, any);
    file.AddVector(absl::StrCat("transformer.h.", layer, ".attn.masked_bias"), 1, any);
  }
  file.Add("lm_head.weight", 17, 12, [](int64_t row, int64_t column) {
    return Gpt2Value("embedding.token.weight", row, column);
  });
  ASSERT_EQ(Load(file), absl::OkStatus());
  ExpectValues();
  file.Add("lm_head.weight", 17, 12, any);
  EXPECT_THAT(std::string(Load(file).message()),
              HasSubstr("'lm_head.weight' differs from 'transformer.wte.weight'"));
  file.Remove("lm_head.weight");
  file.AddVector("transformer.h.2.attn.masked_bias", 1, any);  // of a third layer
  EXPECT_THAT(std::string(Load(file).message()),
              HasSubstr("'transformer.h.2.attn.masked_bias' is no tensor of this model"));
}

}  // namespace
}  // namespace lockstep
