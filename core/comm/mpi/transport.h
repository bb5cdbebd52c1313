#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::mpi {

// Bytes from one process to another, over MPI's point-to-point messages. MPI's own collectives are
// not used: they reduce in orders of their own, and none of them can be given up.
//
// For one thread at a time. An error of MPI's is kept for status(); what was asked for is then
// never done.
class Transport {
 public:
  Transport() = default;
  // What is still on its way and was posted goes on; its memory is never given back.
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Messages meet on the same channel of the same context, in the order of their sends. A context
  // is one group of one world.
  enum class Channel : int {
    kNote,          // of one rank's state to all others
    kAnnouncement,  // of a collective
    kData,          // of a collective
    kMessage,       // the announcement of a send
    kTaken,         // the answer to it
    kMessageData,
  };
  // The channel of a message, by its MPI tag.
  static Channel ChannelOf(int tag) {
    return static_cast<Channel>(tag & ((1 << kChannelBits) - 1));
  }
  struct Address {
    int rank;  // in MPI_COMM_WORLD
    int context;
    Channel channel;
  };
  // The largest context.
  static constexpr int kLargestContext = (1 << 28) - 1;
  // Bits of a tag that are the channel; those above are the context.
  static constexpr int kChannelBits = 3;

  // A message on its way.
  class Request {
   public:
    Request() = default;
    // Whether it is over, and its memory free again. A default-constructed one is; one that MPI has
    // failed to move never is.
    bool Done();
    // Bytes received; after Done.
    int64_t bytes() const { return bytes_; }
    // Gives up a receive that nothing has arrived for; one that came too late for that goes on.
    // Returns whether MPI moves it no more: call it again until then.
    bool GiveUp();

   private:
    friend class Transport;
    Request(Transport* transport, const char* what) : transport_(transport), what_(what) {}
    // Whether MPI moves it no more: it is done, or MPI has failed to move it.
    bool Over() { return Done() || failed_; }

    Transport* transport_ = nullptr;  // which keeps the error
    const char* what_ = "";           // "send"
    MPI_Request request_ = MPI_REQUEST_NULL;
    int64_t bytes_ = 0;
    bool failed_ = false;
  };

  Request Send(const Address& to, const std::byte* from, int64_t bytes);
  Request Receive(const Address& from, std::byte* to, int64_t most);

  // Sends bytes that nobody waits for; they are kept until they are gone.
  void Post(const Address& to, std::vector<std::byte> bytes);
  // Whether some of those are still on their way. Lets go of the others.
  bool HasPosts();

  // Takes a message, whoever sent it, if one has arrived.
  struct Letter {
    int rank;
    std::vector<std::byte> bytes;
  };
  std::optional<Letter> Take(int context, Channel channel);

  // OK, or MPI's first error.
  const absl::Status& status() const { return status_; }

 private:
  struct Posted {
    std::vector<std::byte> bytes;
    Request request;
  };

  // Keeps an error. Returns whether there is none.
  bool Check(int error, const char* what);

  std::list<Posted> posts_;
  absl::Status status_;
};

}  // namespace lockstep::mpi
