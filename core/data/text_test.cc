#include "core/data/text.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/data/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TextTest : public testing::Test {
 protected:
  void Write(const std::string& text) { directory_.Write("text.txt", text); }
  absl::StatusOr<std::shared_ptr<const Text>> TryLoad(
      int64_t context, TextOptions::Vocabulary vocabulary = TextOptions::Vocabulary::kTrain) {
    return Text::Load(directory_.path(),
                      {.path = "text.txt", .context = context, .vocabulary = vocabulary});
  }
  std::shared_ptr<const Text> Load(int64_t context) {
    auto text = TryLoad(context);
    EXPECT_TRUE(text.ok()) << text.status();
    return *text;
  }
  std::string LoadError(int64_t context) {
    const absl::Status status = TryLoad(context).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  TemporaryDirectory directory_;
};

TEST_F(TextTest, SplitsNineToOne) {
  Write(std::string(75, 'a') + std::string(20, 'b') + "abababab");  // 103 characters
  const auto text = Load(4);
  EXPECT_EQ(text->tokens(Split::kTrain), 92);  // floor(103 * 0.9)
  EXPECT_EQ(text->tokens(Split::kValidation), 11);
  EXPECT_EQ(text->classes(), 2);
  EXPECT_EQ(text->size(Split::kTrain), 88);      // windows of 5 begin at 0, ..., 87
  EXPECT_EQ(text->size(Split::kValidation), 2);  // 0-4, 4-8; 8-12 would end at character 13
  EXPECT_EQ(text->context(), 4);
}

TEST_F(TextTest, WindowsShowTheText) {
  std::string characters;
  for (int i = 0; i < 90; ++i) characters += static_cast<char>('a' + i * i % 17);
  characters += characters.substr(0, 10);
  Write(characters);
  const auto text = Load(3);
  for (int64_t index : {0, 1, 50, 86}) {
    const auto filled = FillSamples<int32_t>(*text, Split::kTrain, {{.index = index}});
    EXPECT_EQ(text->vocabulary().Decode(filled.inputs), characters.substr(index, 3));
    EXPECT_EQ(text->vocabulary().Decode(filled.targets), characters.substr(index + 1, 3));
  }
  // Validation: each character but the first is a target once.
  ASSERT_EQ(text->size(Split::kValidation), 3);
  const auto filled =
      FillSamples<int32_t>(*text, Split::kValidation, {{.index = 0}, {.index = 1}, {.index = 2}});
  EXPECT_EQ(text->vocabulary().Decode(filled.targets), characters.substr(91, 9));
}

TEST_F(TextTest, ASeparatorEndsDocuments) {
  std::string characters;
  for (int i = 0; i < 30; ++i) characters += "ab.c.";
  Write(characters);
  const auto load = [&](const std::string& separator) {
    return Text::Load(directory_.path(),
                      {.path = "text.txt", .context = 7, .separator = separator});
  };
  const auto text = load(".");
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_TRUE((*text)->packs_documents());
  CpuAllocator allocator;
  const Batch batch = EmptyBatch(**text, 1, allocator, MemoryClass::kWorkspace);
  const SampleKey key = {.index = 1};  // "b.c.ab." and then "c"
  ASSERT_TRUE((*text)->Fill(Split::kTrain, {&key, 1}, batch).ok());
  const auto documents = batch.documents.span<int32_t>(), targets = batch.targets.span<int32_t>();
  EXPECT_THAT(documents, ::testing::ElementsAre(0, 0, 2, 2, 4, 4, 4));
  const int32_t dot = *(*text)->vocabulary().Token('.'), b = *(*text)->vocabulary().Token('b');
  EXPECT_THAT(targets, ::testing::ElementsAre(dot, -1, dot, -1, b, dot, -1));
  EXPECT_EQ(*(*text)->CountTargets(Split::kTrain, key), 4);

  EXPECT_FALSE((*load(""))->packs_documents());
  EXPECT_THAT(std::string(load("..").status().message()), HasSubstr("must be one character"));
  EXPECT_THAT(std::string(load("\xff").status().message()), HasSubstr("must be one character"));
  EXPECT_THAT(std::string(load("x").status().message()),
              HasSubstr("data.separator is 'x' (U+0078), which does not occur"));
}

TEST_F(TextTest, CountsCharactersNotBytes) {
  std::string characters;
  for (int i = 0; i < 25; ++i) characters += "a\xC3\xA9\xE2\x82\xAC\n";  // a, e acute, euro
  Write(characters);
  const auto text = Load(4);
  EXPECT_EQ(text->tokens(Split::kTrain), 90);
  EXPECT_EQ(text->classes(), 4);
  const auto filled = FillSamples<int32_t>(*text, Split::kTrain, {{.index = 1}});
  EXPECT_EQ(text->vocabulary().Decode(filled.inputs), "\xC3\xA9\xE2\x82\xAC\na");
}

TEST_F(TextTest, AnUnknownCharacterInValidationIsAnError) {
  // Two-byte characters first, so that bytes and characters differ: 90 of them make 180 bytes.
  std::string characters;
  for (int i = 0; i < 96; ++i) characters += "\xC3\xA9";
  Write(characters + "#" + "\xC3\xA9\xC3\xA9\xC3\xA9");
  EXPECT_THAT(LoadError(4),
              AllOf(HasSubstr("\"" + directory_.path() + "/text.txt\""),
                    HasSubstr("character '#' (U+0023) at byte offset 192, in the validation split"),
                    HasSubstr("vocabulary \"all\"")));
  const auto all = TryLoad(4, TextOptions::Vocabulary::kAll);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ((*all)->classes(), 2);
}

// A text and the one that its model is adapted to have the same tokens, given the same files.
TEST_F(TextTest, AVocabularyMayBeThatOfSeveralFiles) {
  directory_.Write("one.txt", std::string(50, 'c') + std::string(50, 'a'));
  directory_.Write("other.txt", std::string(60, 'b') + std::string(40, 'c'));
  const auto load = [&](const std::string& path, const std::vector<std::string>& files) {
    return Text::Load(directory_.path(), {.path = path, .context = 4, .vocabulary_of = files});
  };
  const auto one = load("one.txt", {"one.txt", "other.txt"});
  const auto other = load("other.txt", {"other.txt", "one.txt"});
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  EXPECT_EQ((*one)->vocabulary().characters(), U"abc");
  EXPECT_EQ((*other)->vocabulary().characters(), U"abc");
  EXPECT_THAT(FillSamples<int32_t>(**one, Split::kTrain, {{.index = 0}}).inputs, testing::Each(2));
  EXPECT_THAT(FillSamples<int32_t>(**other, Split::kTrain, {{.index = 0}}).inputs,
              testing::Each(1));
  // In the training split too a character may be missing.
  EXPECT_THAT(
      std::string(load("other.txt", {"one.txt"}).status().message()),
      AllOf(HasSubstr("/other.txt\": character 'b' (U+0062) at byte offset 0 occurs in none "
                      "of the files that vocabulary_of names"),
            HasSubstr("name this file too")));
  EXPECT_THAT(std::string(load("one.txt", {"one.txt", "gone.txt"}).status().message()),
              HasSubstr("/gone.txt\""));
}

TEST_F(TextTest, SaysWhatIsWrongWithTheFile) {
  EXPECT_THAT(LoadError(4), AllOf(HasSubstr("cannot read \"" + directory_.path() + "/text.txt\""),
                                  HasSubstr("--data"), HasSubstr("LOCKSTEP_DATA")));
  EXPECT_THAT(
      std::string(Text::Load(directory_.path(), {.context = 4}).status().message()),
      AllOf(HasSubstr("/tinyshakespeare/input.txt"), HasSubstr("github.com/karpathy/char-rnn")));
  Write("");
  EXPECT_THAT(LoadError(4), HasSubstr("/text.txt\" is empty"));
}

TEST_F(TextTest, SaysHowLongTheTextMustBe) {
  Write(std::string(40, 'a'));
  EXPECT_THAT(LoadError(4),
              AllOf(HasSubstr("is too short: of its 40 characters the last tenth, 4"),
                    HasSubstr("a context of 4 needs 5"), HasSubstr("50 characters do")));
  Write(std::string(50, 'a'));
  EXPECT_TRUE(TryLoad(4).ok());
  EXPECT_THAT(LoadError(0), HasSubstr("context must be at least 1"));
}

TEST_F(TextTest, SaysWhereTheTextIsNotUtf8) {
  Write(std::string(60, 'a') + "\xE9 latin");
  EXPECT_THAT(LoadError(4), AllOf(HasSubstr("/text.txt\": the text is not UTF-8 at byte offset 60"),
                                  HasSubstr("convert it")));
}

}  // namespace
}  // namespace lockstep
