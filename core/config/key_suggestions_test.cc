#include "core/config/key_suggestions.h"

#include <string>
#include <utility>
#include <vector>

#include "core/config/key_meanings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kTransformer = {"kind",  "init",  "layers",
                                               "heads", "width", "dropout"};

TEST(KeySuggestionsTest, TypingErrorsOfTheTableComeFirst) {
  EXPECT_EQ(SuggestKey("model", "widht", kTransformer), "; did you mean model.width?");
  EXPECT_EQ(SuggestKey("model", "n_layers", kTransformer), "; did you mean model.layers?");
  EXPECT_EQ(
      SuggestKey("tensor_parallel", "sequence", std::vector<std::string>{"sequence_parallel"}),
      "; did you mean tensor_parallel.sequence_parallel?");
  EXPECT_EQ(SuggestKey("", "modle", std::vector<std::string>{"data", "model"}),
            "; did you mean model?");
}

TEST(KeySuggestionsTest, NamesOfOtherProgramsAreKnown) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"optimizer.lr", "schedule.learning_rate"},
      {"optimizer.learning_rate", "schedule.learning_rate"},
      {"train.lr", "schedule.learning_rate"},
      {"model.d_model", "model.width"},
      {"model.n_embd", "model.width"},
      {"model.hidden_size", "model.width"},
      {"model.n_layer", "model.layers"},
      {"model.vocab_size", "data.vocabulary"},
      {"precision.dtype", "precision.compute"},
      {"batch.grad_accum", "cut.micro_batches"},
      {"train.gradient_accumulation_steps", "cut.micro_batches"},
      {"gpipe.chunks", "cut.micro_batches"},
      {"train.batch_size", "batch.size"},
      {"train.max_grad_norm", "train.clip_norm"}};
  for (const auto& [theirs, ours] : names) {
    const size_t dot = theirs.find('.');
    EXPECT_EQ(SuggestKey(theirs.substr(0, dot), theirs.substr(dot + 1),
                         std::vector<std::string>{"kind", "size"}),
              "; did you mean " + ours + "?")
        << theirs;
  }
  const std::vector<std::string> tables = {"train", "optimizer", "schedule"};
  EXPECT_EQ(SuggestKey("", "optim", tables), "; did you mean optimizer?");
  EXPECT_EQ(SuggestKey("", "lr_scheduler", tables), "; did you mean schedule?");
}

TEST(KeySuggestionsTest, KeysOfUnknownTablesAreFound) {
  const std::vector<std::string> tables = {"train", "optimizer", "schedule", "model"};
  const std::vector<std::pair<std::string, std::string>> names = {
      {"gpipe.chunks", "cut.micro_batches"},      {"training.seq_len", "data.context"},
      {"training.steps", "train.steps"},  // of the table that is meant, before others
      {"dataset.context", "data.context"},        {"optim.lr", "schedule.learning_rate"},
      {"scheduler.lr", "schedule.learning_rate"}, {"hyper.clip_nrom", "train.clip_norm"}};
  for (const auto& [theirs, ours] : names) {
    const size_t dot = theirs.find('.');
    EXPECT_EQ(SuggestKeyOfUnknownTable(theirs.substr(0, dot), theirs.substr(dot + 1), tables),
              "; did you mean " + ours + "?")
        << theirs;
  }
  // Only the table is wrong, or nothing is near.
  EXPECT_EQ(SuggestKeyOfUnknownTable("modle", "width", tables), "");
  EXPECT_EQ(SuggestKeyOfUnknownTable("optim", "kind", tables), "");
  EXPECT_EQ(SuggestKeyOfUnknownTable("pipeline", "schedule", tables), "");
  EXPECT_EQ(SuggestKeyOfUnknownTable("hyper", "zzzzzzzz", tables), "");
  // A long name is not repeated for each key.
  EXPECT_NE(SuggestKeyOfUnknownTable(std::string(60, 'a'), "seq_len", tables), "");
  EXPECT_EQ(SuggestKeyOfUnknownTable(std::string(61, 'a'), "seq_len", tables), "");
}

TEST(KeySuggestionsTest, KeysOfOtherTablesAreFound) {
  EXPECT_EQ(SuggestKey("train", "warmup_setps", std::vector<std::string>{"steps", "seed"}),
            "; did you mean schedule.warmup_steps?");
  EXPECT_EQ(SuggestKey("", "clip_norm", std::vector<std::string>{"train", "model"}),
            "; did you mean train.clip_norm?");
}

TEST(KeySuggestionsTest, WhereNothingIsNearTheTableIsListed) {
  EXPECT_EQ(SuggestKey("model", "zzzzzz", kTransformer),
            "; [model] has kind, init, layers, heads, width, dropout");
  EXPECT_EQ(SuggestKey("", "zzzzzz", std::vector<std::string>{"train", "model"}),
            "; there are train, model");
  EXPECT_EQ(SuggestKey("model", "zzzzzz", {}), "");
}

TEST(KeySuggestionsTest, AKeyOfAnotherKindIsNotSuggestedToItself) {
  EXPECT_EQ(SuggestKey("model", "dropout", std::vector<std::string>{"kind", "depth"}),
            "; [model] has kind, depth");
  // Nor through another program's name for it.
  EXPECT_EQ(SuggestKey("schedule", "learning_rate", std::vector<std::string>{"kind"}),
            "; [schedule] has kind");
}

TEST(KeySuggestionsTest, ChoicesOfOtherPrograms) {
  const std::vector<std::string> optimizers = {"sgd", "adamw", "lion"};
  EXPECT_EQ(SuggestChoice("optimizer.kind", "adam", optimizers),
            "did you mean \"adamw\" with optimizer.weight_decay = 0? ");
  EXPECT_EQ(SuggestChoice("optimizer.kind", "adamv", optimizers), "did you mean \"adamw\"? ");
  EXPECT_EQ(SuggestChoice("optimizer.kind", "zzzzzz", optimizers), "");
  const std::vector<std::string> models = {"toy", "resnet", "transformer", "llama"};
  for (const std::string name : {"gpt", "gpt2"}) {
    EXPECT_THAT(SuggestChoice("model.kind", name, models), HasSubstr("\"transformer\""));
  }
  EXPECT_THAT(SuggestChoice("model.kind", "resnet50", models), HasSubstr("model.depth = 50"));
}

TEST(KeySuggestionsTest, EveryMeaningIsALineOfItsKey) {
  std::string previous;
  for (const KeyMeaning& entry : KeyMeanings()) {
    EXPECT_LT(previous, entry.key);  // sorted, and no key twice
    EXPECT_FALSE(entry.meaning.empty()) << entry.key;
    EXPECT_LE(entry.meaning.size(), 72u) << entry.key;
    EXPECT_EQ(MeaningOf(entry.key), entry.meaning);
    previous = entry.key;
  }
  EXPECT_EQ(MeaningOf("train.stesp"), "");
}

}  // namespace
}  // namespace lockstep
