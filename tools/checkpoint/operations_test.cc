#include "tools/checkpoint/operations.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>  // setenv
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/checkpoint/safetensors.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/directory/run_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kElements = 1001;

class OperationsTest : public testing::Test {
 protected:
  OperationsTest() : folder_(testing::TempDir() + "/checkpoint_operations") {
    fs::remove_all(folder_);
  }

  // Saves a vector that counts up, in parts of so many ranks, and a replica that rank 0 saves.
  // Element `changed` of the vector is 0.5 more.
  std::string Save(const std::string& run, int64_t step, int ranks, int64_t changed = -1) {
    const std::string checkpoints = folder_ + "/" + run + "/checkpoints";
    fs::create_directories(folder_ + "/" + run);
    const absl::Status status = RunRanks(ranks, {}, [&](RankHandle& handle) {
      CpuAllocator allocator;
      CpuKernels kernels(allocator);
      const Range range = EvenRange(kElements, ranks, handle.rank());
      StateTensor w = {.name = "w",
                       .tensor = kernels.Empty({range.count}),
                       .full_shape = {7, kElements / 7},
                       .first = range.first};
      for (int64_t i = 0; i < range.count; ++i) {
        const int64_t at = range.first + i;
        w.tensor.data<float>()[i] = static_cast<float>(at) + (at == changed ? 0.5f : 0.0f);
      }
      StateTensor bias = {.name = "bias",
                          .tensor = kernels.Empty({3}, DType::kBF16),
                          .full_shape = {3},
                          .is_writer = handle.rank() == 0};
      std::fill_n(bias.tensor.raw(), 6, std::byte{0x3f});
      return SaveCheckpoint(checkpoints, {.step = step, .model = "m", .strategy = "s"}, {w, bias},
                            {.keep = 9}, kernels, handle.comm());
    });
    EXPECT_TRUE(status.ok()) << status;
    return NewestCheckpoint(checkpoints)->value_or("none");
  }

  void FlipBit(const std::string& file, double place) {
    std::string bytes = *ReadFile(file);
    bytes[static_cast<size_t>(place * static_cast<double>(bytes.size()))] ^= 16;
    std::ofstream(file, std::ios::binary) << bytes;
  }

  // Puts in place of a file one of the first version of Lockstep.
  void WriteOfVersion1(const std::string& path) {
    auto file = SafetensorsWriter::Open(
        path, {}, {{"format", "lockstep checkpoint 1"}, {"step", "1"}, {"model", "m"}});
    EXPECT_TRUE(file.ok() && file->Commit().ok());
  }

  const std::string folder_;
};

TEST_F(OperationsTest, ARunStandsForItsNewestCheckpoint) {
  Save("run", 3, 1);
  const std::string newest = Save("run", 4, 2);
  for (const std::string& named : {folder_ + "/run", folder_ + "/run/checkpoints", newest}) {
    EXPECT_EQ(*ResolveCheckpoint(named), newest);
  }
  EXPECT_THAT(std::string(ResolveCheckpoint(folder_ + "/none").status().message()),
              HasSubstr("there is no such file"));
}

TEST_F(OperationsTest, ListsWhatARunHas) {
  Save("run", 3, 1);
  const std::string newest = Save("run", 4, 2);
  auto list = ListAll(folder_ + "/run");
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0].info.step, 3);
  EXPECT_EQ((*list)[0].files, 1);
  EXPECT_EQ((*list)[1].path, newest);
  EXPECT_EQ((*list)[1].files, 2);
  EXPECT_EQ((*list)[1].tensors, 2);
  EXPECT_GT((*list)[1].bytes, kElements * 4);
  fs::remove(newest + "/manifest.json");
  list = ListAll(folder_ + "/run");
  EXPECT_TRUE((*list)[0].status.ok());
  EXPECT_THAT(std::string((*list)[1].status.message()), HasSubstr("manifest.json: is missing"));
}

TEST_F(OperationsTest, ListsOneCheckpoint) {
  for (const std::string& path : {Save("whole", 3, 1), Save("sharded", 4, 2)}) {
    const auto list = ListAll(path);
    ASSERT_TRUE(list.ok()) << list.status();
    ASSERT_EQ(list->size(), 1u);
    EXPECT_EQ((*list)[0].path, path);
    EXPECT_TRUE((*list)[0].status.ok()) << (*list)[0].status;
    EXPECT_EQ((*list)[0].tensors, 2);
  }
}

TEST_F(OperationsTest, ListsTheBestAndThoseSetAside) {
  using Kind = ListedCheckpoint::Kind;
  const std::string run = folder_ + "/run", checkpoints = run + "/checkpoints";
  const std::string oldest = Save("run", 3, 1), kept = Save("run", 4, 2),
                    newest = Save("run", 5, 1);
  fs::create_directories(run + "/best");
  fs::copy(oldest, run + "/best/" + fs::path(oldest).filename().string());
  ASSERT_TRUE(SetAsideDamaged(oldest).ok());
  ASSERT_TRUE(SetAsideSuspect(newest).ok());
  const auto kinds = [&] {
    const auto list = ListAll(run);
    EXPECT_TRUE(list.ok()) << list.status();
    std::vector<std::pair<int64_t, Kind>> found;
    for (const ListedCheckpoint& each : list.value()) {
      EXPECT_TRUE(each.status.ok()) << each.status;
      found.emplace_back(each.info.step, each.kind);
    }
    return found;
  };
  EXPECT_THAT(kinds(),
              testing::ElementsAre(std::pair(4, Kind::kGoesOn), std::pair(3, Kind::kBest),
                                   std::pair(3, Kind::kDamaged), std::pair(5, Kind::kSuspect)));
  // A guard may set all of them aside.
  ASSERT_TRUE(SetAsideSuspect(kept).ok());
  fs::remove_all(run + "/best");
  EXPECT_THAT(kinds(),
              testing::ElementsAre(std::pair(3, Kind::kDamaged), std::pair(4, Kind::kSuspect),
                                   std::pair(5, Kind::kSuspect)));
  const absl::Status none = ResolveCheckpoint(run).status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("/checkpoints: holds no checkpoint but 3 that were set aside"));
  // Each can be looked at by its own path.
  EXPECT_THAT(FindDamage(*ResolveCheckpoint(kept + ".suspect")), testing::IsEmpty());
  EXPECT_TRUE(ListAll(kept + ".suspect").ok());
}

TEST_F(OperationsTest, SaysWhatHasNoCheckpoint) {
  const auto expect_none = [](const std::string& path, const std::string& problem) {
    for (const absl::Status& status : {ListAll(path).status(), ResolveCheckpoint(path).status()}) {
      EXPECT_TRUE(absl::IsNotFound(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(problem));
    }
  };
  expect_none(folder_ + "/typo", "/typo\": there is no such file or folder");
  fs::create_directories(folder_ + "/run");
  expect_none(folder_ + "/run", "/run: holds no checkpoint");
  std::ofstream(folder_ + "/run/config.toml") << "[checkpoint]\nkeep = 0\n";
  expect_none(folder_ + "/run",
              "/run: the run has no checkpoint; a run leaves one where "
              "checkpoint.keep is not 0");
  // A folder with the name of a checkpoint is one whose files are gone.
  const std::string empty = folder_ + "/run/step-00000003";
  fs::create_directories(empty);
  EXPECT_EQ(*ResolveCheckpoint(empty), empty);
  EXPECT_TRUE(absl::IsDataLoss(FindDamage(empty).at(0)));
}

TEST_F(OperationsTest, FindsEveryDamagedTensor) {
  const std::string whole = Save("whole", 1, 1);
  EXPECT_THAT(FindDamage(whole), testing::IsEmpty());
  // The data of the vector lies in the middle of the file.
  FlipBit(whole, 0.5);
  const std::vector<absl::Status> damage = FindDamage(whole);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_THAT(std::string(damage[0].message()), HasSubstr("of tensor 'w' do not have"));
  const std::string sharded = Save("sharded", 1, 3);
  EXPECT_THAT(FindDamage(sharded), testing::IsEmpty());
  FlipBit(sharded + "/shard-00003-of-00003.safetensors", 0);
  EXPECT_EQ(FindDamage(sharded).size(), 1u);
}

TEST_F(OperationsTest, ComparesTensorsAcrossMeshes) {
  const std::string a = Save("a", 1, 1), b = Save("b", 2, 3), c = Save("c", 1, 2, 700);
  const auto same = Compare(a, b);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->tensors, 2);
  EXPECT_THAT(same->differences, testing::IsEmpty());
  EXPECT_EQ(same->b.step, 2);
  const auto different = Compare(b, c);
  ASSERT_TRUE(different.ok()) << different.status();
  ASSERT_EQ(different->differences.size(), 1u);
  const TensorDifference& w = different->differences[0];
  EXPECT_EQ(w.tensor, "w");
  EXPECT_EQ(w.elements, kElements);
  EXPECT_EQ(w.differing, 1);
  EXPECT_EQ(w.first, 700);
  EXPECT_EQ(w.first_a, 700);
  EXPECT_EQ(w.first_b, 700.5);
  EXPECT_EQ(w.largest, 0.5);
}

TEST_F(OperationsTest, ReshapesToAnyNumberOfFiles) {
  const std::string from = Save("from", 5, 2);
  for (const int64_t shards : {1, 3, 4}) {
    const std::string folder = absl::StrCat(folder_, "/in_", shards);
    const auto path = Reshape(from, folder, shards);
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(IsDirectory(*path), shards > 1);
    EXPECT_THAT(FindDamage(*path), testing::IsEmpty());
    const auto compared = Compare(from, *path);
    ASSERT_TRUE(compared.ok()) << compared.status();
    EXPECT_EQ(compared->tensors, 2);
    EXPECT_THAT(compared->differences, testing::IsEmpty());
    EXPECT_EQ(compared->a, compared->b);
    EXPECT_TRUE(absl::IsAlreadyExists(Reshape(from, folder, 2).status()));
  }
  // What is damaged is not written again, and nothing is left of the attempt.
  FlipBit(from + "/shard-00001-of-00002.safetensors", 0.5);
  EXPECT_TRUE(absl::IsDataLoss(Reshape(from, folder_ + "/damaged", 1).status()));
  EXPECT_TRUE(fs::is_empty(folder_ + "/damaged"));
}

TEST_F(OperationsTest, ReshapesToNoMoreFilesThanHoldSomething) {
  const std::string folder = folder_ + "/many";
  fs::create_directories(folder_ + "/run");
  const absl::Status saved = RunRanks(1, {}, [&](RankHandle& handle) {
    CpuAllocator allocator;
    CpuKernels kernels(allocator);
    const StateTensor w = {.name = "w", .tensor = kernels.Empty({2, 3}), .full_shape = {2, 3}};
    std::fill_n(w.tensor.data<float>(), 6, 1.0f);
    return SaveCheckpoint(folder_ + "/run/checkpoints", {.step = 5}, {w}, {}, kernels,
                          handle.comm());
  });
  ASSERT_TRUE(saved.ok()) << saved;
  const std::string from = *ResolveCheckpoint(folder_ + "/run");
  const absl::Status refused = Reshape(from, folder, 7).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("its largest tensor has 6 elements, so that --shards is at most 6"));
  EXPECT_FALSE(fs::exists(folder));
  const auto path = Reshape(from, folder, 6);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(FindDamage(*path), testing::IsEmpty());
}

class CopiesTest : public OperationsTest {
 protected:
  CopiesTest() {
    fs::create_directories(folder_ + "/memory");
    setenv("LOCKSTEP_MEMORY", (folder_ + "/memory").c_str(), 1);
  }
  ~CopiesTest() override { unsetenv("LOCKSTEP_MEMORY"); }

  // A run's directory with a copy of step `steps` in memory; returns its path.
  std::string Copied(const std::string& name, int64_t steps) const {
    const std::string run = folder_ + "/" + name;
    fs::create_directories(run);
    std::ofstream(run + "/" + kRunLockFile) << "host h, process 7\n";
    EXPECT_EQ(MakeInMemoryFolder(run, 1), absl::OkStatus());
    const std::string copy = CheckpointPath(InMemoryFolder(run), steps, CheckpointFiles::kSharded);
    fs::create_directories(copy);
    std::ofstream(copy + "/shard-00001-of-00001.safetensors") << std::string(1000, 'x');
    return run;
  }
  // What the list says of a folder.
  static ListedCopies::Need NeedOf(const std::string& folder) {
    const auto list = ListCopies();
    EXPECT_TRUE(list.ok()) << list.status();
    for (const ListedCopies& copies : list.value()) {
      if (copies.folder.path == folder) return copies.need;
    }
    ADD_FAILURE() << folder << " is not listed";
    return ListedCopies::Need::kRunIsUnknown;
  }
  static ProcessResult Tool(std::vector<std::string> words) {
    words.insert(words.begin(), "tools/checkpoint/checkpoint");
    ProcessOptions options;
    options.arguments = words;
    return *RunProcess(options);
  }
};

TEST_F(CopiesTest, ThoseThatNoRunNeedsAreToldFromOthers) {
  using Need = ListedCopies::Need;
  const std::string run = Copied("run", 40), folder = InMemoryFolder(run);
  EXPECT_EQ(NeedOf(folder), Need::kRunMayGoOn);
  // It was complete after 30 steps, and goes on with more.
  std::ofstream(run + "/summary.json") << R"({"steps": 30})";
  EXPECT_EQ(NeedOf(folder), Need::kRunMayGoOn);
  std::ofstream(run + "/summary.json") << R"({"steps": 40})";
  EXPECT_EQ(NeedOf(folder), Need::kRunIsOver);
  // It goes on once more, and has not made a copy yet.
  fs::remove_all(CheckpointPath(folder, 40, CheckpointFiles::kSharded));
  EXPECT_EQ(NeedOf(folder), Need::kRunMayGoOn);
  fs::rename(run, run + "_moved");
  EXPECT_EQ(NeedOf(folder), Need::kRunIsGone);
  fs::remove(folder + "/run_directory");
  EXPECT_EQ(NeedOf(folder), Need::kRunIsUnknown);
}

TEST_F(CopiesTest, TheProgramListsThemAndRemovesThoseThatAreLeftOver) {
  EXPECT_THAT(Tool({"copies"}).out, HasSubstr("no copies in this machine's memory"));
  const std::string goes_on = Copied("goes_on", 3), over = Copied("over", 4),
                    gone = Copied("gone", 5);
  const std::string needed = InMemoryFolder(goes_on), of_over = InMemoryFolder(over),
                    of_gone = InMemoryFolder(gone);
  std::ofstream(over + "/summary.json") << R"({"steps": 4})";
  fs::remove_all(gone);
  const ProcessResult listed = Tool({"copies"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(
      listed.out,
      AllOf(HasSubstr(needed + "  "), HasSubstr("step 3, of " + fs::canonical(goes_on).string()),
            HasSubstr("is not complete"), HasSubstr("over: left over, as the run is"),
            HasSubstr("gone: left over, as there is no such directory"),
            HasSubstr("\"checkpoint remove_copies\" frees 2.")));
  const ProcessResult removed = Tool({"remove_copies"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_THAT(removed.out, AllOf(HasSubstr(of_over + " is removed"),
                                 HasSubstr(of_gone + " is removed"), Not(HasSubstr(needed))));
  EXPECT_TRUE(fs::exists(needed));
  EXPECT_FALSE(fs::exists(of_over));
  EXPECT_FALSE(fs::exists(of_gone));
  EXPECT_THAT(Tool({"remove_copies"}).out, HasSubstr("are left over"));
  // A run that is not to go on.
  EXPECT_EQ(Tool({"remove_copies", goes_on}).exit_code, 0);
  EXPECT_FALSE(fs::exists(needed));
  EXPECT_THAT(Tool({"remove_copies", goes_on}).err, HasSubstr("has no copies"));
}

TEST_F(CopiesTest, ThoseOfARunThatIsUsedStay) {
  const std::string run = Copied("run", 4);
  std::ofstream(run + "/summary.json") << R"({"steps": 4})";
  const auto used = RunDirectory::Claim(run, RunDirectory::Use::kResumeFromElsewhere);
  ASSERT_TRUE(used.ok()) << used.status();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"remove_copies"}, {"remove_copies", run}}) {
    const ProcessResult refused = Tool(words);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("another program is using this run directory (host h"));
  }
  EXPECT_TRUE(fs::exists(InMemoryFolder(run)));
}

// The program as a user starts it.
TEST_F(OperationsTest, TheProgramTellsAndReturnsCodes) {
  const std::string a = Save("a", 1, 1), c = Save("c", 1, 2, 700);
  const auto run = [](std::vector<std::string> words) {
    words.insert(words.begin(), "tools/checkpoint/checkpoint");
    ProcessOptions options;
    options.arguments = words;
    return *RunProcess(options);
  };
  EXPECT_EQ(run({"list", folder_ + "/a"}).exit_code, 0);
  EXPECT_THAT(run({"list", folder_ + "/a"}).out, HasSubstr("step 1, by s: 2 tensors"));
  EXPECT_EQ(run({"verify", a, c}).exit_code, 0);
  EXPECT_EQ(run({"compare", a, a}).exit_code, 0);
  const ProcessResult parted = run({"compare", a, c});
  EXPECT_EQ(parted.exit_code, 1);
  EXPECT_THAT(parted.out, HasSubstr("w: 1 of 1001 elements differ, by at most 0.5; the first is "
                                    "element 700, 700 and 700.5"));
  EXPECT_EQ(run({"reshape", a, folder_ + "/three", "--shards", "3"}).exit_code, 0);
  EXPECT_EQ(run({"compare", folder_ + "/three", a}).exit_code, 0);
  // What is missing does not keep others from being verified.
  const ProcessResult missing = run({"verify", a, folder_ + "/missing", c});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/missing\": there is no such file or folder"));
  EXPECT_THAT(missing.out, AllOf(HasSubstr("/a/checkpoints/step-00000001.safetensors: each byte"),
                                 HasSubstr("/c/checkpoints/step-00000001: each byte")));
  FlipBit(a, 0.5);
  EXPECT_EQ(run({"verify", a}).exit_code, 1);
  EXPECT_THAT(run({"verify", a}).out, HasSubstr("of tensor 'w'"));
  // What another version of Lockstep wrote is not damaged.
  const std::string other = Save("other", 1, 1);
  WriteOfVersion1(other);
  const ProcessResult listed = run({"list", folder_ + "/other"});
  EXPECT_EQ(listed.exit_code, 1);
  EXPECT_THAT(listed.out, AllOf(HasSubstr("  cannot be read: "),
                                HasSubstr("was written by another version of Lockstep")));
  // What a run has set aside is no damage that anybody would need to hear of.
  std::ofstream(*SetAsideDamaged(other)) << "short";
  Save("other", 2, 1);
  const ProcessResult aside = run({"list", folder_ + "/other"});
  EXPECT_EQ(aside.exit_code, 0);
  EXPECT_THAT(aside.out, AllOf(HasSubstr("step 2, by s: 2 tensors"),
                               HasSubstr(".damaged  set aside as damaged; damaged: ")));
  EXPECT_THAT(run({"mend", a}).err, HasSubstr("no command \"mend\"; there are:"));
  EXPECT_THAT(run({"compare", a}).err, HasSubstr("checkpoint compare A B"));
}

}  // namespace
}  // namespace lockstep
