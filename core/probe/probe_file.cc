#include "core/probe/probe_file.h"

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/status.h"
#include "core/checkpoint/checksums.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "lockstep.probes.1";
constexpr char kRowsEnding[] = ".jsonl", kValuesEnding[] = ".values";
constexpr size_t kChecksumDigits = 16;

constexpr std::array<const char*, 7> kKinds = {
    "state before", "forward", "backward", "shard gradient", "gradient", "number", "state after"};
constexpr std::array<DType, 7> kDTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64,
                                          DType::kI32, DType::kI64, DType::kU8};

std::string HexOf(uint64_t number) { return absl::StrFormat("%016x", number); }

Json ToJson(const ProbeHeader& header) {
  Json json = {{"format", kFormat},           {"program", header.program},
               {"workload", header.workload}, {"model", header.model},
               {"step", header.step},         {"rank", header.rank},
               {"ranks", header.ranks},       {"batch", header.batch},
               {"shards", header.shards},     {"micro_batches", header.micro_batches},
               {"tokens", header.tokens},     {"blocks", header.blocks}};
  if (header.has_legs) json["legs"] = true;
  return json;
}

Json ToJson(const ProbeRecord& record) {
  Json json = {{"kind", Name(record.kind)}, {"place", record.place}};
  if (record.number >= 0) json["number"] = record.number;
  if (!record.part.empty()) json["part"] = record.part;
  json["dtype"] = Name(record.dtype);
  json["shape"] = record.held.StoredShape();
  if (!record.held.IsWhole()) json["slice"] = record.held.ToText();
  json["hash"] = HexOf(record.digest.hash[0]) + HexOf(record.digest.hash[1]);
  json["squares"] = record.digest.squares;
  json["largest"] = record.digest.largest;
  json["not_finite"] = record.digest.not_finite;
  if (record.values_at >= 0) json["values_at"] = record.values_at;
  return json;
}

// Throws Json's exceptions for members that are missing or of another type.
ProbeHeader HeaderFrom(const Json& json) {
  return {.program = json.at("program").get<std::string>(),
          .workload = json.at("workload").get<std::string>(),
          .model = json.at("model").get<std::string>(),
          .step = json.at("step").get<int64_t>(),
          .rank = json.at("rank").get<int64_t>(),
          .ranks = json.at("ranks").get<int64_t>(),
          .batch = json.at("batch").get<int64_t>(),
          .shards = json.at("shards").get<int64_t>(),
          .micro_batches = json.at("micro_batches").get<int64_t>(),
          .tokens = json.at("tokens").get<int64_t>(),
          .blocks = json.at("blocks").get<std::vector<std::string>>(),
          .has_legs = json.value("legs", false)};
}

absl::StatusOr<ProbeRecord> RecordFrom(const Json& json) {
  ProbeRecord record;
  const std::string kind = json.at("kind").get<std::string>();
  size_t number = 0;
  while (number < kKinds.size() && kind != kKinds[number]) ++number;
  if (number == kKinds.size()) return InvalidArgument("has the unknown kind '", kind, "'");
  record.kind = static_cast<ProbeKind>(number);
  record.place = json.at("place").get<std::string>();
  record.number = json.value("number", int64_t{-1});
  record.part = json.value("part", "");
  const std::string dtype = json.at("dtype").get<std::string>();
  size_t type = 0;
  while (type < kDTypes.size() && dtype != Name(kDTypes[type])) ++type;
  if (type == kDTypes.size()) return InvalidArgument("has the unknown type '", dtype, "'");
  record.dtype = kDTypes[type];
  const auto shape = json.at("shape").get<std::vector<int64_t>>();
  if (json.contains("slice")) {
    LS_ASSIGN_OR_RETURN(record.held, ParseTensorSlice(json["slice"].get<std::string>(), shape));
  } else {
    record.held = WholeSlice(shape);
  }
  const std::string hash = json.at("hash").get<std::string>();
  for (size_t word = 0; word < 2; ++word) {
    if (hash.size() != 2 * kChecksumDigits ||
        !absl::SimpleHexAtoi(hash.substr(word * kChecksumDigits, kChecksumDigits),
                             &record.digest.hash[word])) {
      return InvalidArgument("has a hash that is not of 32 hexadecimal digits");
    }
  }
  record.digest.squares = json.at("squares").get<double>();
  record.digest.largest = json.at("largest").get<double>();
  record.digest.not_finite = json.at("not_finite").get<int64_t>();
  record.values_at = json.value("values_at", int64_t{-1});
  return record;
}

// The JSON of a row, if its checksum is right.
absl::StatusOr<Json> ParseRow(absl::string_view row) {
  const auto damaged = [] { return InvalidArgument("is damaged: its checksum is another one"); };
  uint64_t checksum = 0;
  if (row.size() <= kChecksumDigits + 1 || row[kChecksumDigits] != ' ' ||
      !absl::SimpleHexAtoi(row.substr(0, kChecksumDigits), &checksum)) {
    return InvalidArgument("is no row of a file of probes");
  }
  const absl::string_view text = row.substr(kChecksumDigits + 1);
  if (ChecksumOf(std::string_view(text.data(), text.size())) != checksum) return damaged();
  const Json json = ParseJson<Json>({text.data(), text.size()});
  if (!json.is_object()) return InvalidArgument("is no JSON object");
  return json;
}

absl::Status AtRow(const std::string& path, size_t row, const absl::Status& status) {
  return Annotate(status, absl::StrCat(path, ":", row + 1));
}

absl::StatusOr<ProbeFile> Parse(const std::string& path, const std::vector<absl::string_view>& rows,
                                size_t& row) {
  ProbeFile file = {.path = path, .header = {}, .records = {}};
  LS_ASSIGN_OR_RETURN(const Json header, ParseRow(rows[row]));
  if (header.value("format", "") != kFormat) {
    return InvalidArgument("is not the header of a file of the format ", kFormat);
  }
  file.header = HeaderFrom(header);
  for (++row; row < rows.size(); ++row) {
    LS_ASSIGN_OR_RETURN(const Json json, ParseRow(rows[row]));
    if (json.contains("records")) {
      if (json["records"].get<size_t>() == file.records.size() && row + 1 == rows.size()) {
        return file;
      }
      return InvalidArgument("is the last row of a file of ", json["records"].get<int64_t>(),
                             " records, which has ", file.records.size(), " before it");
    }
    LS_ASSIGN_OR_RETURN(ProbeRecord record, RecordFrom(json));
    file.records.push_back(std::move(record));
  }
  return InvalidArgument("is missing: the file was cut short; run the probed step again");
}

}  // namespace

const char* Name(ProbeKind kind) { return kKinds[static_cast<size_t>(kind)]; }

absl::StatusOr<ProbeWriter> ProbeWriter::Open(const std::string& folder, const ProbeHeader& header,
                                              bool with_values) {
  LS_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path =
      absl::StrFormat("%s/step-%06d.rank-%05d", folder, header.step, header.rank);
  LS_ASSIGN_OR_RETURN(AtomicFileWriter rows, AtomicFileWriter::Open(path + kRowsEnding));
  std::optional<AtomicFileWriter> values;
  if (with_values) {
    LS_ASSIGN_OR_RETURN(values, AtomicFileWriter::Open(path + kValuesEnding));
  }
  ProbeWriter writer(std::move(rows), std::move(values));
  LS_RETURN_IF_ERROR(writer.AddRow(ToJson(header).dump()));
  return writer;
}

absl::Status ProbeWriter::Add(ProbeRecord record, const uint8_t* bytes) {
  record.digest = DigestOf(record.dtype, bytes, record.held);
  if (values_) {
    const int64_t size = record.held.elements * SizeOf(record.dtype);
    record.values_at = std::exchange(value_bytes_, value_bytes_ + size);
    LS_RETURN_IF_ERROR(
        values_->Append({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)}));
  }
  ++records_;
  return AddRow(ToJson(record).dump());
}

// The values first: rows that are there name values that are there.
absl::Status ProbeWriter::Commit() {
  LS_RETURN_IF_ERROR(AddRow(Json({{"records", records_}, {"value_bytes", value_bytes_}}).dump()));
  if (values_) LS_RETURN_IF_ERROR(values_->Commit());
  return rows_.Commit();
}

absl::Status ProbeWriter::AddRow(const std::string& json) {
  return rows_.Append(absl::StrCat(HexOf(ChecksumOf(json)), " ", json, "\n"));
}

absl::StatusOr<ProbeFile> ReadProbeFile(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<absl::string_view> rows = absl::StrSplit(text, '\n');
  if (rows.back().empty()) rows.pop_back();
  if (rows.empty()) return AtRow(path, 0, InvalidArgument("is missing: the file is empty"));
  size_t row = 0;
  try {
    absl::StatusOr<ProbeFile> file = Parse(path, rows, row);
    if (!file.ok()) return AtRow(path, row, file.status());
    return file;
  } catch (const Json::exception& error) {
    return AtRow(path, row, InvalidArgument("lacks what such a row has: ", error.what()));
  }
}

absl::StatusOr<std::string> ReadProbedValues(const ProbeFile& file, const ProbeRecord& record) {
  const std::string path =
      file.path.substr(0, file.path.size() - (sizeof(kRowsEnding) - 1)) + kValuesEnding;
  // Mapped, because a file may have gigabytes and only the pages of this record are needed.
  LS_ASSIGN_OR_RETURN(const MappedFile file_of_values, MappedFile::Open(path));
  const std::span<const std::byte> all = file_of_values.bytes();
  const auto size = static_cast<size_t>(record.held.elements * SizeOf(record.dtype));
  const auto begin = static_cast<size_t>(record.values_at);
  if (record.values_at < 0 || begin > all.size() || size > all.size() - begin) {
    return InvalidArgument(path, ": has no values of ", record.place,
                           "; run again with --set probe.values=true");
  }
  std::string values(reinterpret_cast<const char*>(all.data()) + begin, size);
  const TensorDigest digest =
      DigestOf(record.dtype, reinterpret_cast<const uint8_t*>(values.data()), record.held);
  if (digest.hash != record.digest.hash) {
    return InvalidArgument(path, ": is damaged: the values of ", record.place,
                           " are not those of their hash; run the probed step again");
  }
  return values;
}

}  // namespace lockstep
