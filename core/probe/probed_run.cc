#include "core/probe/probed_run.h"

#include <algorithm>
#include <cstring>  // std::memcpy
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/checkpoint/tensor_slice.h"

namespace lockstep {
namespace {

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

// Puts the records of one place together.
class Whole {
 public:
  explicit Whole(ProbeKey key) { whole_.key = std::move(key); }

  absl::Status Add(const ProbedRun& run, ProbedWhole::Shard shard) {
    const ProbeFile& file = run.files[shard.file];
    const ProbeRecord& record = file.records[shard.record];
    if (whole_.shards.empty()) {
      whole_.dtype = record.dtype;
      whole_.shape = record.held.whole;
    } else if (whole_.dtype != record.dtype || whole_.shape != record.held.whole) {
      return InvalidArgument(file.path, ": ", record.place,
                             " has another shape or type than on other ranks");
    }
    const auto [copy, is_new] = copies_.emplace(record.held.ToText(), shard);
    if (is_new) {
      whole_.digest.Add(record.digest);
      whole_.elements += record.held.elements;
      whole_.shards.push_back(shard);
      return absl::OkStatus();
    }
    const ProbeFile& other = run.files[copy->second.file];
    if (other.records[copy->second.record].digest.hash != record.digest.hash &&
        whole_.conflict.empty()) {
      whole_.conflict =
          absl::StrCat("ranks ", other.header.rank, " and ", file.header.rank, " have copies");
    }
    return absl::OkStatus();
  }

  ProbedWhole Take() { return std::move(whole_); }

 private:
  ProbedWhole whole_;
  std::map<std::string, ProbedWhole::Shard> copies_;  // by the elements that they hold
};

// Whether two files may be of one run. Steps of a run with legs may have different programs and
// numbers of ranks.
bool AreOfOneRun(const ProbeHeader& a, const ProbeHeader& b) {
  const bool may_be_of_two_legs = a.has_legs && b.has_legs && a.step != b.step;
  return a.workload == b.workload && a.model == b.model &&
         ((a.program == b.program && a.ranks == b.ranks) || may_be_of_two_legs);
}

absl::Status CheckTogether(const ProbedRun& run) {
  std::map<int64_t, const ProbeFile*> first_of_step;
  std::map<int64_t, std::set<int64_t>> ranks_of_step;
  for (const ProbeFile& file : run.files) {
    const ProbeHeader& header = file.header;
    const ProbeFile* const of_step = first_of_step.emplace(header.step, &file).first->second;
    for (const ProbeFile* other : {&run.files[0], of_step}) {
      if (AreOfOneRun(header, other->header)) continue;
      return InvalidArgument(file.path, ": belongs to another run than ", other->path,
                             "; remove the files of one of them");
    }
    ranks_of_step[header.step].insert(header.rank);
  }
  for (const auto& [step, ranks] : ranks_of_step) {
    const int64_t all = first_of_step[step]->header.ranks;
    if (static_cast<int64_t>(ranks.size()) == all) continue;
    return InvalidArgument(run.folder, ": step ", step + 1, " has probes of ", ranks.size(), " of ",
                           all, " ranks; copy the files of all ranks there");
  }
  return absl::OkStatus();
}

absl::Status PutTogether(ProbedRun& run) {
  std::map<ProbeKey, size_t> places;
  std::vector<Whole> wholes;
  for (size_t f = 0; f < run.files.size(); ++f) {
    const ProbeFile& file = run.files[f];
    std::map<ProbeKey, int64_t> occurrences;  // on this rank
    for (size_t r = 0; r < file.records.size(); ++r) {
      const ProbeRecord& record = file.records[r];
      ProbeKey key = {.step = file.header.step,
                      .kind = record.kind,
                      .number = record.number,
                      .place = record.place,
                      .part = record.part};
      key.occurrence = occurrences[key]++;
      const auto [place, is_new] = places.emplace(key, wholes.size());
      if (is_new) wholes.emplace_back(key);
      LS_RETURN_IF_ERROR(wholes[place->second].Add(run, {.file = f, .record = r}));
    }
  }
  for (Whole& whole : wholes) run.tensors.push_back(whole.Take());
  return absl::OkStatus();
}

}  // namespace

std::string ProbeKey::ToString() const {
  std::string text = absl::StrCat("step ", step + 1);
  if (number >= 0) {
    absl::StrAppend(&text, kind == ProbeKind::kShardGradient ? ", shard " : ", micro-batch ",
                    number);
  }
  absl::StrAppend(&text, ", ", Name(kind), " of ", place);
  if (occurrence > 0) absl::StrAppend(&text, " (pass ", occurrence + 1, ")");
  if (!part.empty()) absl::StrAppend(&text, ", part ", part);
  return text;
}

bool ProbedWhole::is_complete() const { return elements == ElementsOf(shape); }

std::string ProbedRun::Programs() const {
  std::vector<std::string> names;
  for (const ProbeFile& file : files) {
    std::string name = absl::StrCat(file.header.program, ", ", file.header.ranks, " ranks");
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return absl::StrJoin(names, "; ");
}

bool ProbedRun::has_values() const {
  return std::any_of(files.begin(), files.end(), [](const ProbeFile& file) {
    return !file.records.empty() && file.records[0].values_at >= 0;
  });
}

const ProbedWhole* ProbedRun::Find(const ProbeKey& key) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&key](const ProbedWhole& each) { return each.key == key; });
  return found == tensors.end() ? nullptr : &*found;
}

absl::StatusOr<std::string> ProbedRun::Values(const ProbedWhole& tensor) const {
  const auto size = static_cast<size_t>(SizeOf(tensor.dtype));
  std::string whole(static_cast<size_t>(ElementsOf(tensor.shape)) * size, '\0');
  for (const ProbedWhole::Shard& shard : tensor.shards) {
    const ProbeFile& file = files[shard.file];
    const ProbeRecord& record = file.records[shard.record];
    LS_ASSIGN_OR_RETURN(const std::string values, ReadProbedValues(file, record));
    for (const ElementRange& range : record.held.ElementRanges()) {
      std::memcpy(whole.data() + static_cast<size_t>(range.in_whole) * size,
                  values.data() + static_cast<size_t>(range.in_slice) * size,
                  static_cast<size_t>(range.elements) * size);
    }
  }
  return whole;
}

absl::StatusOr<ProbedRun> ReadProbedRun(const std::string& run) {
  ProbedRun probed = {.folder = absl::StrCat(run, "/", kProbeFolder), .files = {}, .tensors = {}};
  std::vector<std::string> names;
  if (IsDirectory(probed.folder)) {
    LS_ASSIGN_OR_RETURN(names, ListFolder(probed.folder));
  }
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, ".jsonl")) continue;
    LS_ASSIGN_OR_RETURN(ProbeFile file, ReadProbeFile(absl::StrCat(probed.folder, "/", name)));
    probed.files.push_back(std::move(file));
  }
  if (probed.files.empty()) {
    return absl::NotFoundError(
        absl::StrCat(probed.folder,
                     ": holds no probes; run again with --set probe.steps=3, and "
                     "--set probe.first_step=N to begin with a later step"));
  }
  LS_RETURN_IF_ERROR(CheckTogether(probed));
  LS_RETURN_IF_ERROR(PutTogether(probed));
  return probed;
}

}  // namespace lockstep
