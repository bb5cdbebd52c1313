#include "core/comm/mpi/transport.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep::mpi {
namespace {

int Tag(int context, Transport::Channel channel) {
  CHECK(context >= 0 && context <= Transport::kLargestContext) << context;
  return context << Transport::kChannelBits | static_cast<int>(channel);
}

int Count(int64_t bytes) {
  CHECK_LE(bytes, std::numeric_limits<int>::max());
  return static_cast<int>(bytes);
}

}  // namespace

Transport::~Transport() {
  if (HasPosts()) (void)std::make_unique<std::list<Posted>>(std::move(posts_)).release();
}

bool Transport::Request::Done() {
  if (failed_) return false;
  if (request_ == MPI_REQUEST_NULL) return true;
  int done = 0;
  MPI_Status status;
  failed_ = !transport_->Check(MPI_Test(&request_, &done, &status), what_);
  if (failed_ || done == 0) return false;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  bytes_ = count;
  return true;
}

bool Transport::Request::GiveUp() {
  if (Over()) return true;
  MPI_Cancel(&request_);
  return Over();
}

Transport::Request Transport::Send(const Address& to, const std::byte* from, int64_t bytes) {
  Request request(this, "send");
  request.failed_ =
      !Check(MPI_Isend(from, Count(bytes), MPI_BYTE, to.rank, Tag(to.context, to.channel),
                       MPI_COMM_WORLD, &request.request_),
             request.what_);
  return request;
}

Transport::Request Transport::Receive(const Address& from, std::byte* to, int64_t most) {
  Request request(this, "receive");
  request.failed_ =
      !Check(MPI_Irecv(to, Count(most), MPI_BYTE, from.rank, Tag(from.context, from.channel),
                       MPI_COMM_WORLD, &request.request_),
             request.what_);
  return request;
}

void Transport::Post(const Address& to, std::vector<std::byte> bytes) {
  Posted& posted = posts_.emplace_back();
  posted.bytes = std::move(bytes);
  posted.request = Send(to, posted.bytes.data(), static_cast<int64_t>(posted.bytes.size()));
}

bool Transport::HasPosts() {
  posts_.remove_if([](Posted& posted) { return posted.request.Over(); });
  return !posts_.empty();
}

std::optional<Transport::Letter> Transport::Take(int context, Channel channel) {
  int there = 0;
  MPI_Message message;
  MPI_Status status;
  if (!Check(MPI_Improbe(MPI_ANY_SOURCE, Tag(context, channel), MPI_COMM_WORLD, &there, &message,
                         &status),
             "probe")) {
    return std::nullopt;
  }
  if (there == 0) return std::nullopt;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  Letter letter = {.rank = status.MPI_SOURCE,
                   .bytes = std::vector<std::byte>(static_cast<size_t>(count))};
  if (!Check(MPI_Mrecv(letter.bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE),
             "receive")) {
    return std::nullopt;
  }
  return letter;
}

bool Transport::Check(int error, const char* what) {
  if (error == MPI_SUCCESS) return true;
  if (!status_.ok()) return false;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  status_ = absl::UnavailableError(
      absl::StrCat("MPI cannot ", what, ": ", std::string(text, static_cast<size_t>(length))));
  return false;
}

}  // namespace lockstep::mpi
