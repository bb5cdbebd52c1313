#include "foresight/dialect.h"

#include <string>

#include "core/base/file.h"
#include "foresight/kernel_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TensorKind Of(DType dtype, const Shape& shape) {
  TensorKind kind;
  kind.dtype = dtype;
  kind.shape = shape;
  return kind;
}

// x [2, 8, 16], w [48, 16], bias [48]: queries, keys and values of 16 features.
KernelCall QkvCall() {
  KernelCall call;
  call.kernel = "Linear";
  call.tensors = {Of(DType::kF16, {2, 8, 16}), Of(DType::kF16, {48, 16}), Of(DType::kF16, {48}),
                  TensorKind(), Of(DType::kF16, {2, 8, 48})};
  return call;
}

// 2 samples of 8 tokens, 4 heads of width 4.
KernelCall AttentionCall() {
  KernelCall call;
  call.kernel = "AttentionForward";
  call.tensors = {Of(DType::kF16, {2, 8, 48}), Of(DType::kF16, {2, 8, 16}),
                  Of(DType::kF32, {2, 4, 8})};
  return call;
}

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name + ".toml";
  EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  return path;
}

TEST(DialectTest, FormulasKnowTensorsAndFittedNumbers) {
  const auto dialect = Dialect::Read(Write("formulas", R"toml(
name = "formulas"
[fitted]
share = 0.5
[kernels.Linear]
let = { both = "x + y" }
does = ["product(x.rows, w.rows, w.columns, tp)", "pass(share * both)", "pass(residual)"]
keeps = "x.elements"
host = "1e-6 * (vocabulary == 0)"
)toml"));
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  DialectContext context;
  context.tp = 3;
  const auto cost = dialect->CostOf(QkvCall(), context);
  ASSERT_TRUE(cost.ok()) << cost.status();
  ASSERT_EQ(cost->kernels.size(), 2);  // there is no residual
  EXPECT_EQ(cost->kernels[0].m, 16);
  EXPECT_EQ(cost->kernels[0].n, 48);
  EXPECT_EQ(cost->kernels[0].k, 16);
  EXPECT_EQ(cost->kernels[0].batch, 3);
  EXPECT_EQ(cost->kernels[0].dtype, DType::kF16);
  EXPECT_EQ(cost->kernels[1].bytes, 0.5 * (512 + 1536));
  EXPECT_EQ(cost->kept_bytes, 256);
  EXPECT_EQ(cost->host_seconds, 1e-6);
  // Equal calls on parts of the rows are one call on all of them.
  const auto merged = dialect->CostOf(QkvCall(), context, 4);
  EXPECT_EQ(merged->kernels[0].m, 64);
  EXPECT_EQ(merged->kernels[0].n, 48);
  EXPECT_EQ(merged->kept_bytes, 1024);
}

TEST(DialectTest, TheFirstRuleThatAppliesCounts) {
  const auto dialect = Dialect::Read(Write("rules", R"toml(
name = "rules"
[kernels.Linear.0]
when = "tp > 1"
does = ["pass(1)"]
[kernels.Linear.1]
does = ["pass(2)"]
)toml"));
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  DialectContext context;
  EXPECT_EQ(dialect->CostOf(QkvCall(), context)->kernels[0].bytes, 2);
  context.tp = 2;
  EXPECT_EQ(dialect->CostOf(QkvCall(), context)->kernels[0].bytes, 1);
  EXPECT_THAT(std::string(dialect->CostOf(AttentionCall(), context).status().message()),
              AllOf(HasSubstr("rules"), HasSubstr("AttentionForward")));
}

TEST(DialectTest, OneFileIsBasedOnAnother) {
  Write("base", R"toml(
name = "base"
parameter_bytes = { value = 2, gradient = 4, optimizer = 12 }
options = ["mesh.cp=1", "recompute.granularity=none", "recompute.granularity=full"]
[fitted]
bytes = 5
[kernels.Linear]
does = ["pass(bytes)"]
[kernels.AttentionForward]
does = ["pass(1)"]
)toml");
  auto dialect = Dialect::Read(Write("derived", R"toml(
name = "derived"
based_on = "base"
[fitted]
a_new_one = 3
bytes = 7
[kernels.AttentionForward]
does = ["maps(a_new_one)"]
)toml"));
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  EXPECT_EQ(dialect->name(), "derived");
  EXPECT_EQ(dialect->parameter_bytes().total(), 18);
  EXPECT_EQ(dialect->parameter_bytes().optimizer, 12);
  for (const char* option : {"mesh.cp=1", "mesh.tp=2", "recompute.granularity=full"}) {
    EXPECT_TRUE(dialect->CheckOption(option).ok()) << option;
  }
  EXPECT_EQ(dialect->CheckOption("recompute.granularity=selective").message(),
            "derived has no recompute.granularity=selective; it has none, full");
  EXPECT_EQ(dialect->CostOf(QkvCall(), {})->kernels[0].bytes, 7);
  EXPECT_EQ(dialect->CostOf(AttentionCall(), {})->kernels[0].bytes, 3);
  dialect->fitted()["bytes"] = 9;
  EXPECT_EQ(dialect->CostOf(QkvCall(), {})->kernels[0].bytes, 9);
}

TEST(DialectTest, NamesAllProblemsAtOnce) {
  const auto dialect = Dialect::Read(Write("wrong", R"toml(
name = "wrong"
colour = "red"
parameter_bytes = { value = -1 }
options = ["zero1"]
[kernels.Linaer]
does = ["pass(1)"]
[kernels.Linear]
does = ["pass(z)", "product(1)", "sleep(1)"]
keeps = "x +"
)toml"));
  EXPECT_THAT(std::string(dialect.status().message()),
              AllOf(HasSubstr("wrong.toml"), HasSubstr("Linaer"), HasSubstr("'z'"),
                    HasSubstr("product(1)"), HasSubstr("sleep(1)"), HasSubstr("ends early"),
                    HasSubstr("colour"), HasSubstr("value"), HasSubstr("zero1 is no key=value")));
}

// A layer of Megatron has 15 kernels in forward and 27 in backward.
TEST(DialectTest, MegatronComputesAttentionMaps) {
  const auto dialect = Dialect::Read("foresight/dialects/megatron_2021.toml");
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  const auto cost = dialect->CostOf(AttentionCall(), {});
  ASSERT_TRUE(cost.ok()) << cost.status();
  ASSERT_EQ(cost->kernels.size(), 5);
  EXPECT_EQ(cost->kernels[0].m, 8);
  EXPECT_EQ(cost->kernels[0].n, 8);
  EXPECT_EQ(cost->kernels[0].k, 4);
  EXPECT_EQ(cost->kernels[0].batch, 8);
  EXPECT_EQ(cost->kernels[1].bytes, 2 * 2 * 8 * 8 * 8);
  // Queries, keys and values; 5 bytes a probability (Korthikanti et al. 2022, equation 1).
  EXPECT_EQ(cost->kept_bytes, 2 * 2 * 8 * 48 + 5 * 8 * 8 * 8);
  DialectContext context;
  context.recomputed = {"AttentionForward"};
  EXPECT_EQ(dialect->CostOf(AttentionCall(), context)->kept_bytes, 2 * 2 * 8 * 48);
}

TEST(DialectTest, ShippedDialectsAreRight) {
  for (const char* name : {"lockstep", "megatron_2021", "megatron_2022", "vtrain_profile"}) {
    const auto dialect = Dialect::Read(std::string("foresight/dialects/") + name + ".toml");
    ASSERT_TRUE(dialect.ok()) << dialect.status();
    EXPECT_EQ(dialect->name(), name);
    EXPECT_TRUE(dialect->CostOf(QkvCall(), {}).ok());
  }
}

}  // namespace
}  // namespace lockstep
