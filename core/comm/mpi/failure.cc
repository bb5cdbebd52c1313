#include "core/comm/mpi/failure.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lockstep::mpi {

namespace {

Failure FailureFrom(const nlohmann::json& json) {
  const absl::StatusCode code = json.at("code");
  const std::string message = json.at("message");
  return {.kind = json.at("kind"),
          .rank = json.at("rank"),
          .cause = absl::Status(code, message),
          .noticed_by = json.at("noticed_by")};
}

// Orders kinds by how much they say about the cause: 0 says most.
int OrderOf(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::kReported:
      return 0;
    case Failure::Kind::kDropped:  // its rank may still say why
      return 1;
    case Failure::Kind::kCall:
      return 2;
    case Failure::Kind::kStopped:
      return 3;
  }
  return 3;
}

}  // namespace

absl::Status Failure::ForAll() const {
  if (kind != Kind::kReported) return cause;
  return absl::Status(cause.code(), absl::StrCat("rank ", rank, " failed: ", cause.message()));
}

bool Failure::Explains(const Failure& first) const {
  return kind == Kind::kReported && first.kind == Kind::kDropped && first.rank == rank;
}

bool Failure::GoesBefore(const Failure& own) const {
  return std::pair(OrderOf(kind), noticed_by) < std::pair(OrderOf(own.kind), own.noticed_by);
}

std::vector<std::byte> Encode(const Note& note) {
  nlohmann::json json = {
      {"kind", note.kind}, {"last_call", note.last_call}, {"succeeded", note.succeeded}};
  if (note.failure) {
    json["failure"] = {{"kind", note.failure->kind},
                       {"rank", note.failure->rank},
                       {"code", note.failure->cause.code()},
                       {"message", std::string(note.failure->cause.message())},
                       {"noticed_by", note.failure->noticed_by}};
  }
  // What is no UTF-8 in a message, of a file's name say, is replaced.
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

absl::StatusOr<Note> DecodeNote(absl::Span<const std::byte> bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const auto json = nlohmann::json::parse(text, text + bytes.size(), nullptr, false);
  try {
    std::optional<Failure> failure;
    if (json.at("kind") == Note::Kind::kFailure) failure = FailureFrom(json.at("failure"));
    return Note{.kind = json.at("kind"),
                .failure = std::move(failure),
                .last_call = json.at("last_call"),
                .succeeded = json.at("succeeded")};
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat("bytes that are no note: ", error.what()));
  }
}

}  // namespace lockstep::mpi
